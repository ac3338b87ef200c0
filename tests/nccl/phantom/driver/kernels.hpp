// The seam between the driver stand-in and whatever emulates kernels.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace phantom {

struct Launch {
  std::string kernel;   // name as registered (mangled)
  std::string name;     // the same for people
  std::string library;  // the file that the kernel's fat binary is part of
  unsigned grid_x = 1, block_x = 1;
  std::vector<char> args;  // the argument block, copied at launch
};

// Runs on the stream's thread; returns when the "kernel" has finished.
void run_kernel(const Launch& launch);

}  // namespace phantom
