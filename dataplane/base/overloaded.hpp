// One visitor from a lambda for each alternative of a variant.
#pragma once

namespace nbx {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace nbx
