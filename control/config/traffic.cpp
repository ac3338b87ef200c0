// Flow size distributions from files.
#include <fstream>
#include <sstream>

#include "config/load.hpp"
#include "config/reader.hpp"
#include "config/traffic_keys.hpp"

namespace nbx::config {

void Raw<traffic::CdfSize>::read(const Value& value, traffic::CdfSize& cdf, Diagnostics& out) {
  if (!expect_word(value, type(), out)) {
    return;
  }
  if (const auto published = traffic::published_sizes(value.text); !published.empty()) {
    cdf.points.assign(published.begin(), published.end());
    return;
  }
  const auto fail = [&](const std::string& message) { out.push_back({value.pos, message}); };
  const std::string path = beside({value.text, value.pos});
  std::ifstream in(path);
  if (!in) {
    fail("cannot read '" + path + "', and there is no such published distribution: web_search, fb_hadoop");
    return;
  }
  std::string line;
  for (unsigned number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    std::istringstream words(line);
    traffic::CdfPoint point;
    std::string rest;
    const bool right = words >> point.bytes >> point.share && !(words >> rest);
    point.share /= 100;
    const auto& before = cdf.points;
    if (!right || point.bytes < 0 || point.share < 0 || point.share > 1 ||
        (!before.empty() && (point.bytes < before.back().bytes || point.share <= before.back().share))) {
      fail(path + ":" + std::to_string(number) + ": not bytes and a per cent, both rising");
      return;
    }
    cdf.points.push_back(point);
  }
  if (cdf.points.size() < 2 || cdf.points.front().share != 0 || cdf.points.back().share != 1) {
    fail(path + ": does not go from 0 to 100 per cent");
  }
}

}  // namespace nbx::config
