// What a device function number stands for.
#pragma once
#include <string>

namespace phantom::nccl {

enum class CollKind { send_recv, all_gather, broadcast, all_reduce, reduce, reduce_scatter, other };
enum RedOp { sum = 0, prod = 1, min_max = 2, pre_mul_sum = 3, sum_post_div = 4 };
enum Algo { tree_algo = 0, ring_algo = 1, other_algo = 2 };

struct Function {
  CollKind coll = CollKind::other;
  int red_op = 0;
  int type = 0;  // ncclDataType_t
  int algo = ring_algo;
  int proto = 2;
  std::string text;  // as NCCL's generator writes it, "AllReduce Sum f32 RING LL"
};

bool parse_function(const std::string& text, Function* out);

}  // namespace phantom::nccl
