// SimCCL, SimAI's stand-in for NCCL, writes flows as columns with tabs between them: number, numbers of the flows that
// it waits for or -1, sender, receiver, size and channel.
#include <unordered_map>

#include "config/job_keys.hpp"
#include "import/import.hpp"
#include "import/words.hpp"

namespace nbx::import {
namespace {

constexpr std::size_t columns = 6;
constexpr std::uint64_t rank_max = (1U << 20U) - 1;

class SimCcl {
 public:
  explicit SimCcl(config::Diagnostics& out) : out_(out) {}

  bool read(const std::vector<Word>& line) {
    if (line.size() != columns) {
      return error(line.front(),
                   "a flow has " + std::to_string(columns) + " columns, not " + std::to_string(line.size()));
    }
    const auto id = whole(line[0].text);
    const auto from = whole(line[2].text);
    const auto to = whole(line[3].text);
    if (!id) {
      return error(line[0], quoted(line[0].text) + " is no number");
    }
    if (!from || *from > rank_max) {
      return error(line[2], quoted(line[2].text) + " is no rank");
    }
    if (!to || *to > rank_max || *to == *from) {
      return error(line[3], quoted(line[3].text) + " is no rank but the sender's");
    }
    const auto bytes = size_of(line[4]);
    if (!bytes) {
      return false;
    }
    if (!flows_.emplace(*id, Ends{*from, *to}).second) {
      return error(line[0], "flow " + std::to_string(*id) + " is there twice");
    }
    std::string after;
    if (line[1].text != "-1" && !read_parents(line[1], *id, *from, after)) {
      return false;
    }
    steps_ += "  - {flow: {from: " + std::to_string(*from) + ", to: " + std::to_string(*to) +
              ", bytes: " + std::to_string(*bytes) + "B}, name: flow " + std::to_string(*id) + ", after: [" + after +
              "]}\n";
    return true;
  }

  [[nodiscard]] std::string yaml() const { return "job: imported-simccl\neach_step:\n" + steps_; }

 private:
  struct Ends {
    std::uint64_t from;
    std::uint64_t to;
  };
  bool error(const Word& word, std::string message) {
    out_.push_back({word.pos, std::move(message)});
    return false;
  }

  bool read_parents(const Word& word, std::uint64_t id, std::uint64_t from, std::string& after) {
    for (std::string_view rest = word.text; !rest.empty();) {
      const std::string_view text = rest.substr(0, rest.find(','));
      Word part = word;
      part.pos.column += static_cast<std::uint32_t>(text.data() - word.text.data());
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
      const auto number = whole(text);
      const auto parent = number ? flows_.find(*number) : flows_.end();
      if (parent == flows_.end() || *number == id) {
        return error(part,
                     "flow " + std::to_string(id) + " waits for " + quoted(text) + ", which is no flow before it");
      }
      if (parent->second.from != from && parent->second.to != from) {
        warn(
            out_, part.pos,
            "rank " + std::to_string(from) + " has no part in flow " + std::string(text) + ": it does not wait for it");
      }
      after += (after.empty() ? "flow " : ", flow ") + std::string(text);
    }
    return true;
  }

  /// "512KB", as SimCCL means it: 512 times 1,024 bytes.
  std::optional<std::uint64_t> size_of(const Word& word) {
    const auto size = quantity(word.text);
    const double unit = !size                                     ? 0
                        : size->unit.empty() || size->unit == "B" ? 1
                        : size->unit == "KB"                      ? 1U << 10U
                        : size->unit == "MB"                      ? 1U << 20U
                        : size->unit == "GB"                      ? 1U << 30U
                                                                  : 0;
    const double bytes = size ? size->value * unit : 0;
    if (!(bytes >= 1 && bytes <= static_cast<double>(config::message_limits.max))) {
      error(word, quoted(word.text) + " is no size from 1 byte to 2^40, in bytes, KB, MB or GB");
      return std::nullopt;
    }
    return static_cast<std::uint64_t>(bytes);
  }

  config::Diagnostics& out_;
  std::unordered_map<std::uint64_t, Ends> flows_;
  std::string steps_;
};

}  // namespace

Imported from_simccl(const std::string& name, std::string_view text) {
  Imported out;
  const auto lines = words_of(name, text);
  const auto header = [](const std::vector<Word>& line) {
    return line.size() == columns && line[0].text == "ID" && line[1].text == "parent_id";
  };
  if (lines.empty() || !header(lines[0])) {
    out.diagnostics.push_back({lines.empty() ? start_of(name) : lines[0][0].pos,
                               "flows of SimCCL begin with 'ID parent_id src dst size channel_id'"});
    return out;
  }
  if (lines.size() == 1) {
    out.diagnostics.push_back({lines[0][0].pos, "no flow follows"});
    return out;
  }
  SimCcl flows(out.diagnostics);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (!flows.read(lines[i])) {
      return out;
    }
  }
  warn(out.diagnostics, lines[0][5].pos, "flows from a rank to another share a connection, whatever their channel");
  out.yaml = flows.yaml();
  return out;
}

}  // namespace nbx::import
