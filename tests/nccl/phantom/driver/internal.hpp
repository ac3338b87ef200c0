// phantom-gpu driver stand-in (libcuda.so.1): types shared by its translation units.
//
// Everything that a real driver would keep on the device lives in ordinary host
// memory here, so a CUdeviceptr is a plain host address.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define PHANTOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace phantom {

// ---- logging: PHANTOM_LOG=0 silent, 1 odd things (default), 2 every call -----
int log_level();
void log_line(int level, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
#define PLOG(level, ...)                                                              \
  do {                                                                                \
    if (::phantom::log_level() >= (level)) ::phantom::log_line((level), __VA_ARGS__); \
  } while (0)

// ---- device memory that was made elsewhere than in memory.cpp -------------------
void note_memory(void* p, size_t size, int device);
void forget_memory(void* p);

// ---- device model, set through the environment --------------------------------
struct DeviceModel {
  int count;     // PHANTOM_GPU_COUNT, default 1
  int cc_major;  // PHANTOM_GPU_CC, default "9.0"
  int cc_minor;
  int sm_count;
  size_t total_mem;
  static const DeviceModel& get();
};
// PCI address of device i, the same formula as in the NVML stand-in.
std::string pci_bus_id(int dev);

// ---- a point in a stream's history, waited on by events and syncs ---------------
class Mark {
 public:
  explicit Mark(bool done = false) : done_(done) {}
  void complete();
  void wait();
  bool done();
  uint64_t nanos();

 private:
  std::mutex mu_;
  std::condition_variable cv_;
  bool done_;
  uint64_t nanos_ = 0;
};

// Implemented entry point for a driver API name at (or below) a version, or null.
void* find_entry(const char* name, int version);

CUstream_st* resolve_stream(CUstream s);
// Current context of the calling thread; null if none.
CUcontext current_context();

}  // namespace phantom

// cuda.h only declares these; the driver owns their definition.
struct CUctx_st {
  int device = 0;
  unsigned flags = 0;
  int refs = 0;
};

struct CUstream_st {
  explicit CUstream_st(int dev, unsigned f, int prio = 0) : device(dev), flags(f), priority(prio) {}
  void enqueue(std::function<void()> op);
  std::shared_ptr<phantom::Mark> mark();  // completes when all work queued so far is done
  bool idle();                            // nothing queued, nothing running
  void close();                           // drain what is queued, then free

  int device;
  unsigned flags;
  int priority;
  uint64_t id = 0;

 private:
  void loop();
  std::mutex mu_;
  std::condition_variable cv_;
  std::deque<std::function<void()>> ops_;
  bool started_ = false, closing_ = false, busy_ = false;
};

struct CUevent_st {
  std::mutex mu;
  unsigned flags = 0;
  std::shared_ptr<phantom::Mark> mark = std::make_shared<phantom::Mark>(true);
};

struct CUlib_st {
  std::string file;  // what the fat binary is part of
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels;
  std::map<std::string, std::unique_ptr<std::vector<char>>> globals;
  std::mutex mu;
};

// One kernel, by its name: CUkernel, CUfunction and CUmodule handles all come from here.
struct CUkern_st {
  std::string name;
  CUlib_st* lib = nullptr;
};
