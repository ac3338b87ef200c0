// SimAI (Wang et al., NSDI 2025) takes workloads that its generator AICB writes: a header with the sizes of the
// parallel groups, the number of layers, and for each layer its name, a place holder, and for the forward pass, the
// gradients of inputs and those of weights each a time in nanoseconds, a collective and its bytes; then a time for the
// update.
#include <nlohmann/json.hpp>

#include "config/job_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

constexpr std::size_t columns = 12;
constexpr std::uint64_t ranks_max = 1U << 20U;
constexpr std::uint64_t hour_ns = 3'600'000'000'000;

struct Groups {
  std::uint64_t tensor = 1;
  std::uint64_t expert = 1;
  std::uint64_t pipeline = 1;
  std::uint64_t all = 0;

  [[nodiscard]] std::uint64_t data() const { return all / (tensor * pipeline); }
};

class SimAi {
 public:
  explicit SimAi(config::Diagnostics& out) : out_(out) {}

  bool read_header(const std::vector<Word>& line) {
    for (std::size_t i = 1; i + 1 < line.size(); i += 2) {
      const std::string_view key = line[i].text.substr(0, line[i].text.find(':'));
      const auto value = whole(line[i + 1].text);
      std::uint64_t* const known = key == "model_parallel_NPU_group" ? &groups_.tensor
                                   : key == "ep"                     ? &groups_.expert
                                   : key == "pp"                     ? &groups_.pipeline
                                   : key == "all_gpus"               ? &groups_.all
                                                                     : nullptr;
      if (known != nullptr && (!value || *value == 0 || *value > ranks_max)) {
        return error(line[i + 1], "a number from 1 to " + std::to_string(ranks_max) + " is wanted");
      }
      if (known != nullptr) {
        *known = *value;
      } else if (key == "ga" && value != std::optional<std::uint64_t>{1}) {
        warn(out_, line[i].pos, "each layer runs once; the job does not repeat it for accumulated gradients");
      }
    }
    if (groups_.all == 0 || groups_.all % (groups_.tensor * groups_.pipeline) != 0 ||
        groups_.data() % groups_.expert != 0) {
      return error(line.front(), "'all_gpus' is no multiple of the groups' sizes");
    }
    if (groups_.pipeline != 1) {
      warn(out_, line.front().pos, "the stages of the pipeline do not pass anything on; they all do the same at once");
    }
    return true;
  }

  bool read_layer(const std::vector<Word>& line) {
    if (line.size() != columns) {
      return error(line.front(),
                   "a layer has " + std::to_string(columns) + " columns, not " + std::to_string(line.size()));
    }
    std::string forward;
    std::string backward;
    if (!add_pass(line, 2, "forward", forward) || !add_pass(line, 5, "gradients of inputs", backward) ||
        !add_pass(line, 8, "gradients of weights", backward)) {
      return false;
    }
    forward_ += forward;
    backward_ = backward + backward_;
    return true;
  }

  [[nodiscard]] std::string yaml() const {
    return "job: imported-simai\ndescription: for " + std::to_string(groups_.all) + " ranks\neach_step:\n" + forward_ +
           backward_;
  }
  [[nodiscard]] bool empty() const { return forward_.empty() && backward_.empty(); }

 private:
  bool error(const Word& word, std::string message) {
    out_.push_back({word.pos, std::move(message)});
    return false;
  }

  /// The three columns of one pass as operations.
  bool add_pass(const std::vector<Word>& line, std::size_t first, const char* pass, std::string& to) {
    const auto time = whole(line[first].text);
    if (!time || *time > hour_ns) {
      return error(line[first], quoted(line[first].text) + " is no time in nanoseconds up to an hour");
    }
    const std::string name = nlohmann::json(std::string(line[0].text) + ", " + pass)
                                 .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (*time != 0) {
      to += "  - {compute: " + std::to_string(*time) + "ns, name: " + name + "}\n";
    }
    const auto bytes = whole(line[first + 2].text);
    if (!bytes || *bytes > config::message_limits.max) {
      return error(line[first + 2], quoted(line[first + 2].text) + " is no number of bytes to 2^40");
    }
    return line[first + 1].text == "NONE" || add_collective(line[first + 1], *bytes, first == 8, name, to);
  }

  bool add_collective(const Word& word, std::uint64_t bytes, bool of_weights, const std::string& name,
                      std::string& to) {
    const std::string_view kind = word.text.substr(0, word.text.find('_'));
    const std::string_view among = word.text.substr(std::min(word.text.size(), kind.size() + 1));
    const char* const operation = kind == "ALLREDUCE"       ? "all_reduce"
                                  : kind == "ALLGATHER"     ? "all_gather"
                                  : kind == "REDUCESCATTER" ? "reduce_scatter"
                                  : kind == "ALLTOALL"      ? "all_to_all"
                                                            : nullptr;
    if (operation == nullptr || (!among.empty() && among != "EP" && among != "DP_EP")) {
      return error(word, quoted(word.text) + " is no collective that is known here");
    }
    const std::uint64_t size = among == "EP"      ? groups_.expert
                               : among == "DP_EP" ? groups_.data() / groups_.expert
                               : of_weights       ? groups_.data()
                                                  : groups_.tensor;
    const std::uint64_t stride = among == "EP"      ? groups_.tensor
                                 : among == "DP_EP" ? groups_.tensor * groups_.expert
                                 : of_weights       ? groups_.tensor
                                                    : 1;
    if (bytes == 0 || size == 1) {
      warn(out_, word.pos, quoted(word.text) + (bytes == 0 ? " of nothing" : " of one rank alone") + " is left out");
      return true;
    }
    to += std::string("  - {") + operation + ": {bytes: " + std::to_string(bytes) +
          "B, group: {size: " + std::to_string(size) + ", stride: " + std::to_string(stride) + "}}, name: " + name +
          "}\n";
    return true;
  }

  config::Diagnostics& out_;
  Groups groups_;
  std::string forward_;
  std::string backward_;
};

}  // namespace

Imported from_simai(const std::string& name, std::string_view text) {
  Imported out;
  const auto lines = words_of(name, text);
  const auto fail = [&](const config::SourcePos& pos, std::string message) {
    out.diagnostics.push_back({pos, std::move(message)});
    return out;
  };
  if (lines.empty() || lines.front().front().text != "HYBRID_TRANSFORMER_FWD_IN_BCKWD") {
    return fail(lines.empty() ? start_of(name) : lines.front().front().pos,
                "a workload begins with HYBRID_TRANSFORMER_FWD_IN_BCKWD; others are not known here");
  }
  SimAi workload(out.diagnostics);
  if (!workload.read_header(lines.front())) {
    return out;
  }
  const auto layers = lines.size() > 1 && lines[1].size() == 1 ? whole(lines[1].front().text) : std::nullopt;
  if (!layers || lines.size() - 2 != *layers) {
    return fail(lines[std::min<std::size_t>(1, lines.size() - 1)].front().pos,
                "the number of layers is wanted, and as many lines after it");
  }
  for (std::size_t i = 2; i < lines.size(); ++i) {
    if (!workload.read_layer(lines[i])) {
      return out;
    }
  }
  if (workload.empty()) {
    return fail(lines.front().front().pos, "nothing in it takes time or sends");
  }
  out.yaml = workload.yaml();
  return out;
}

}  // namespace nbx::import
