#include "capture/comment.hpp"

#include <charconv>

namespace nbx::capture {
namespace {

constexpr std::string_view prefix = "nbx:";
constexpr std::string_view word_dropped = "dropped";
constexpr std::string_view word_delay = "delay=";
constexpr std::string_view word_late = "late=";
constexpr std::string_view word_unit = "ns";
constexpr std::string_view word_ecn_marked = "ecn-marked";
constexpr std::string_view word_duplicate = "duplicate";
constexpr std::string_view word_corrupted = "corrupted";
constexpr std::string_view word_reordered = "reordered";
constexpr std::string_view word_event = "event=";

constexpr std::size_t digits_max = 20;
constexpr std::size_t longest_reason() {
  std::size_t longest = 0;
  for (const CounterInfo& drop : drop_info) {
    longest = std::max(longest, drop.name.size());
  }
  return longest;
}
static_assert(prefix.size() + 1 + word_dropped.size() + 1 + longest_reason() + 1 + word_delay.size() + digits_max +
                  word_unit.size() + 1 + word_late.size() + digits_max + word_unit.size() + 1 + word_ecn_marked.size() +
                  1 + word_duplicate.size() + 1 + word_corrupted.size() + 1 + word_reordered.size() + 1 +
                  word_event.size() + digits_max <=
              comment_size_max);

/// To the nearest nanosecond.
constexpr std::int64_t to_ns(Duration d) {
  const std::int64_t rest = d.count() % 1000;
  return d.count() / 1000 + (rest >= 500 ? 1 : 0) - (rest <= -500 ? 1 : 0);
}

/// Words with a space between; the longest comment fits, so nothing is checked.
class Line {
 public:
  explicit Line(CommentBuffer& buffer) noexcept : begin_(buffer.data()), at_(buffer.data()) {}

  void word(std::string_view text) noexcept {
    if (at_ != begin_) {
      *at_++ = ' ';
    }
    append(text);
  }
  void nanoseconds(std::string_view key, Duration d) noexcept {
    word(key);
    at_ = std::to_chars(at_, at_ + digits_max, to_ns(d)).ptr;
    append(word_unit);
  }
  void number(std::string_view key, std::uint64_t value) noexcept {
    word(key);
    at_ = std::to_chars(at_, at_ + digits_max, value).ptr;
  }
  [[nodiscard]] std::string_view text() const noexcept { return {begin_, static_cast<std::size_t>(at_ - begin_)}; }

 private:
  void append(std::string_view text) noexcept { at_ += text.copy(at_, text.size()); }

  char* begin_;
  char* at_;
};

/// The next word of `text`, which is removed from it.
std::string_view take_word(std::string_view& text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

std::optional<std::int64_t> parse_nanoseconds(std::string_view word, std::string_view key) noexcept {
  if (!word.starts_with(key) || !word.ends_with(word_unit) || word.size() < key.size() + word_unit.size()) {
    return std::nullopt;
  }
  word.remove_prefix(key.size());
  word.remove_suffix(word_unit.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::uint32_t> parse_event(std::string_view word) noexcept {
  if (!word.starts_with(word_event)) {
    return std::nullopt;
  }
  word.remove_prefix(word_event.size());
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string_view format_comment(CommentBuffer& buffer, const Treatment& treatment,
                                std::optional<Duration> late) noexcept {
  if (!treatment.any()) {
    return {};
  }
  Line line(buffer);
  line.word(prefix);
  if (treatment.dropped != Drop::none) {
    line.word(word_dropped);
    line.word(name(treatment.dropped));
  }
  if (treatment.delay != Duration::zero()) {
    line.nanoseconds(word_delay, treatment.delay);
    if (late) {
      line.nanoseconds(word_late, *late);
    }
  }
  const auto flag = [&line](bool set, std::string_view word) {
    if (set) {
      line.word(word);
    }
  };
  flag(treatment.ecn_marked, word_ecn_marked);
  flag(treatment.duplicate, word_duplicate);
  flag(treatment.corrupted, word_corrupted);
  flag(treatment.reordered, word_reordered);
  if (treatment.event != 0) {
    line.number(word_event, treatment.event);
  }
  return line.text();
}

std::optional<Comment> parse_comment(std::string_view text) noexcept {
  if (take_word(text) != prefix) {
    return std::nullopt;
  }
  Comment comment;
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
    if (word == word_dropped) {
      comment.dropped = take_word(text);
      if (comment.dropped.empty()) {
        return std::nullopt;
      }
    } else if (const auto delay = parse_nanoseconds(word, word_delay)) {
      comment.delay_ns = delay;
    } else if (const auto late = parse_nanoseconds(word, word_late)) {
      comment.late_ns = late;
    } else if (word == word_ecn_marked) {
      comment.ecn_marked = true;
    } else if (word == word_duplicate) {
      comment.duplicate = true;
    } else if (word == word_corrupted) {
      comment.corrupted = true;
    } else if (word == word_reordered) {
      comment.reordered = true;
    } else if (const auto event = parse_event(word)) {
      comment.event = *event;
    } else {
      return std::nullopt;
    }
  }
  return comment;
}

}  // namespace nbx::capture
