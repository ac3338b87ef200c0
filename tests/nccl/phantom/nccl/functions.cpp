#include "functions.hpp"

#include <sstream>
#include <vector>

namespace phantom::nccl {
namespace {

using Names = std::vector<std::string>;
const Names colls{"SendRecv", "AllGather", "Broadcast", "AllReduce", "Reduce", "ReduceScatter"};
const Names ops{"Sum", "Prod", "MinMax", "PreMulSum", "SumPostDiv"};
const Names types{"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
const Names algos{"TREE", "RING"};
const Names protos{"LL", "LL128", "SIMPLE"};

int index_of(const Names& names, const std::string& n) {
  for (size_t i = 0; i < names.size(); i++) {
    if (names[i] == n) {
      return int(i);
    }
  }
  return -1;
}

}  // namespace

bool parse_function(const std::string& text, Function* out) {
  std::istringstream in(text);
  std::string coll;
  Function f;
  if (!(in >> coll)) {
    return false;
  }
  f.text = coll;
  Names words;
  for (std::string w; in >> w; words.push_back(w)) {
    f.text += " " + w;
  }
  *out = f;
  const int kind = index_of(colls, coll);
  if (kind < 0) {
    return true;  // known by its name only
  }
  out->coll = CollKind(kind);
  if (words.size() == 4) {
    out->red_op = index_of(ops, words[0]);
    out->type = index_of(types, words[1]);
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() == 2) {
    out->algo = index_of(algos, words[0]);
    if (out->algo < 0) {
      out->algo = other_algo;
    }
    out->proto = index_of(protos, words[1]);
  }
  return out->red_op >= 0 && out->type >= 0 && out->proto >= 0;
}

}  // namespace phantom::nccl
