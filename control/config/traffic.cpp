// Flow size distributions from files.
#include "config/traffic.hpp"

#include <fstream>
#include <sstream>

namespace nbx::config {

void complete_cdf(FlowCdf& cdf, const std::string& path, Diagnostics& out) {
  if (const auto published = traffic::published_sizes(*cdf.source); !published.empty()) {
    cdf.sizes.points.assign(published.begin(), published.end());
    return;
  }
  const auto fail = [&](const std::string& message) { out.push_back({cdf.source.pos, message}); };
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
    const auto& before = cdf.sizes.points;
    if (!right || point.bytes < 0 || point.share < 0 || point.share > 1 ||
        (!before.empty() && (point.bytes < before.back().bytes || point.share <= before.back().share))) {
      fail(path + ":" + std::to_string(number) + ": not bytes and a per cent, both rising");
      return;
    }
    cdf.sizes.points.push_back(point);
  }
  if (cdf.sizes.points.size() < 2 || cdf.sizes.points.front().share != 0 || cdf.sizes.points.back().share != 1) {
    fail(path + ": does not go from 0 to 100 per cent");
  }
}

}  // namespace nbx::config
