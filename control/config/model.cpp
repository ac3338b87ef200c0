#include "config/model.hpp"

#include <algorithm>

#include "config/cluster_keys.hpp"
#include "config/job_keys.hpp"
#include "config/scenario_keys.hpp"

namespace nbx::config {
namespace {

/// Visits the description of one structure.
class Modeller {
 public:
  Modeller(Model& model, std::size_t index) : model_(model), index_(index) {}

  void about(const About& about) {
    Structure& self = structure();
    self.name = about.name;
    self.doc = about.doc;
    self.shorthand = about.shorthand;
    self.bare_names = about.bare_names;
  }

  template <class T>
  void field(std::string_view key, T&& target, std::string_view doc, const FieldOptions& options = {}) {
    std::string otherwise(options.fallback);
    if (otherwise.empty() && !options.required) {
      otherwise = written(target);
    }
    Type type = type_of(target, options);
    structure().keys.push_back(
        {std::string(key), std::string(doc), std::move(type), options.required, std::move(otherwise)});
  }

  template <class Variant, class... A>
  void choice(Variant& /*target*/, const ChoiceOptions& options, const A&... alternatives) {
    structure().choices.push_back({options.required, std::string(options.fallback)});
    (add_alternative(alternatives), ...);
  }

 private:
  [[nodiscard]] Structure& structure() { return model_[index_]; }

  template <class A>
  void add_alternative(const A& alternative) {
    typename A::Type sample{};
    Type type = type_of(alternative.project(sample), alternative.options);
    const int choice = static_cast<int>(structure().choices.size()) - 1;
    structure().keys.push_back(
        {std::string(alternative.key), std::string(alternative.doc), std::move(type), false, {}, choice});
  }

  /// A default as it would stand in a file; empty for what is not a word or a list of words.
  template <class T>
  static std::string written(const T& value) {
    if constexpr (is_as<T>) {
      return written(wrap<typename T::Written>(value.member));
    } else if constexpr (is_located<T>) {
      return written(value.value);
    } else if constexpr (is_vector<T>) {
      std::string all;
      for (const auto& each : value) {
        all += (all.empty() ? "`" : ", `") + plain(each) + "`";
      }
      return all.empty() ? "none" : all;
    } else {
      const std::string text = plain(value);
      return text.empty() ? text : "`" + text + "`";
    }
  }
  template <class T>
  static std::string plain(const T& value) {
    if constexpr (ScalarType<T>) {
      return Scalar<T>::format(value);
    } else {
      return {};
    }
  }

  template <class T>
  Type type_of(T&& target, const FieldOptions& options) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (is_as<Plain>) {
      return scalar<typename Plain::Written>(options.limits, limits_of(target, options.limits));
    } else if constexpr (is_located<Plain>) {
      return type_of(target.value, options);
    } else if constexpr (is_optional<Plain>) {
      typename Plain::value_type sample{};
      return type_of(sample, options);
    } else if constexpr (is_vector<Plain>) {
      typename Plain::value_type sample{};
      Type list{.kind = Type::Kind::list, .one_or_many = options.one_or_many};
      list.element.push_back(type_of(sample, {.limits = options.limits}));
      return list;
    } else if constexpr (RawType<Plain>) {
      return {.kind = Type::Kind::scalar, .word = Raw<Plain>::type(), .schema = Raw<Plain>::schema()};
    } else if constexpr (ScalarType<Plain>) {
      return scalar<Plain>(options.limits, limits_of(target, options.limits));
    } else {
      return {.kind = Type::Kind::structure, .structure = &structure_of(target)};
    }
  }

  /// `asked` are the limits of the key, `held` those and what the member can hold.
  template <class T>
  static Type scalar(const Limits& asked, const Limits& held) {
    std::string word = Scalar<T>::type();
    if constexpr (requires { Scalar<T>::from(asked.min); }) {
      const auto bound = [](std::uint64_t limit) { return Scalar<T>::format(Scalar<T>::from(limit)); };
      word += asked.min != Limits{}.min ? " from " + bound(asked.min) : "";
      word += asked.max != Limits{}.max ? " to " + bound(asked.max) : "";
    }
    return {.kind = Type::Kind::scalar, .word = std::move(word), .schema = Scalar<T>::schema(held)};
  }

  template <class T>
  const Structure& structure_of(T& sample) {
    model_.emplace_back();
    const std::size_t index = model_.size() - 1;
    Modeller modeller(model_, index);
    describe(modeller, sample);
    const auto known = std::find_if(model_.begin(), model_.end(),
                                    [&](const Structure& each) { return each.name == model_[index].name; });
    if (known != model_.begin() + static_cast<std::ptrdiff_t>(index)) {
      model_.pop_back();
    }
    return *known;
  }

  Model& model_;
  std::size_t index_;
};

template <class T>
Model model_of() {
  Model model(1);
  T sample{};
  Modeller modeller(model, 0);
  describe(modeller, sample);
  return model;
}

}  // namespace

Model cluster_model() { return model_of<ClusterConfig>(); }
Model profile_model() { return model_of<Profile>(); }
Model job_model() { return model_of<Job>(); }
Model scenario_model() { return model_of<Scenario>(); }
Model nic_model() { return model_of<Nic>(); }

}  // namespace nbx::config
