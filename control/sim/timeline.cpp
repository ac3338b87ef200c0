#include "sim/timeline.hpp"

#include <algorithm>

namespace nbx::sim {
namespace {

constexpr std::size_t samples_max = 512;
constexpr std::size_t flows_max = 16;

double us(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

}  // namespace

Timeline::Timeline(const switching::Network* network, std::vector<Flow> flows)
    : network_(network), flows_(std::move(flows)) {
  flows_.resize(std::min(flows_.size(), flows_max));
}

void Timeline::sample(Instant now) {
  Sample sample;
  for (switching::SwitchId s = 0; network_ != nullptr && s < network_->topology().switches.size(); ++s) {
    for (switching::PortIndex port = 0; port < network_->at(s).ports(); ++port) {
      for (unsigned p = 0; p < switching::priorities; ++p) {
        const std::uint64_t queued = network_->at(s).port(port).queued(p);
        sample.fullest = std::max(sample.fullest, queued);
        sample.all += queued;
      }
    }
  }
  for (const Flow& flow : flows_) {
    sample.sent.push_back(flow.qp->stats().payload_bytes_tx);
  }
  for (; next_ <= now; next_ = next_ + interval_) {
    samples_.push_back(sample);
    if (samples_.size() == samples_max) {
      for (std::size_t i = 1; i < samples_max / 2; ++i) {
        samples_[i] = std::move(samples_[2 * i]);
      }
      samples_.resize(samples_max / 2);
      interval_ *= 2;
      next_ = Instant{} + interval_ * static_cast<std::int64_t>(samples_max / 2 - 1);
    }
  }
}

nlohmann::ordered_json Timeline::report() const {
  nlohmann::ordered_json doc{{"interval_us", us(interval_)}};
  if (network_ != nullptr) {
    doc["fullest_queue_bytes"] = nlohmann::ordered_json::array();
    doc["queued_bytes"] = nlohmann::ordered_json::array();
    for (const Sample& sample : samples_) {
      doc["fullest_queue_bytes"].push_back(sample.fullest);
      doc["queued_bytes"].push_back(sample.all);
    }
  }
  doc["flows"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    nlohmann::ordered_json rates = nlohmann::ordered_json::array();
    for (std::size_t k = 1; k < samples_.size(); ++k) {
      const auto bits = static_cast<double>((samples_[k].sent[i] - samples_[k - 1].sent[i]) * 8);
      rates.push_back(bits / us(interval_) * 1e-3);
    }
    doc["flows"].push_back(
        {{"from", flows_[i].from}, {"to", flows_[i].to}, {"lane", flows_[i].lane}, {"payload_gbps", std::move(rates)}});
  }
  return doc;
}

}  // namespace nbx::sim
