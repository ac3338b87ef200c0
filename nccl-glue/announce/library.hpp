// Where NCCL is: the functions behind the ones of the same name that this library exports.
#pragma once

namespace nbx::nccl::announce {

/// Found after this library in the program's scope, else in the NCCL that the program loaded by itself; null: nowhere.
[[nodiscard]] void* nccl_symbol(const char* name);

/// True on a thread that is inside NCCL: what NCCL calls of its own interface is not the program's.
inline thread_local bool inside_nccl = false;

class InsideNccl {
 public:
  InsideNccl() { inside_nccl = true; }
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;
  ~InsideNccl() { inside_nccl = before_; }

 private:
  bool before_ = inside_nccl;
};

/// Calls NCCL's function of the name. `Function` is this library's function of the same type.
template <auto* Function, class... Arguments>
auto pass_on(const char* name, Arguments... arguments) {
  static const auto function = reinterpret_cast<decltype(Function)>(nccl_symbol(name));
  const InsideNccl inside;
  return function(arguments...);
}

}  // namespace nbx::nccl::announce
