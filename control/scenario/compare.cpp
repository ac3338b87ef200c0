#include "scenario/compare.hpp"

#include <map>
#include <string>
#include <utility>

namespace nbx::scenario {

using Json = nlohmann::ordered_json;

Result<Json> compare(const Json& a, const Json& b) {
  Json rows = Json::array();
  try {
    std::map<std::pair<std::string, std::string>, const Json*> others;
    for (const Json& verdict : b) {
      for (const Json& row : verdict.at("assertions")) {
        others[{verdict.at("scenario"), row.at("assertion")}] = &row;
      }
    }
    for (const Json& verdict : a) {
      for (const Json& row : verdict.at("assertions")) {
        const auto found = others.find({verdict.at("scenario"), row.at("assertion")});
        if (found == others.end()) {
          continue;
        }
        const Json& other = *found->second;
        const Json& mine = row.at("measured");
        const Json& theirs = other.at("measured");
        Json ratio = "";
        if (mine.is_number() && theirs.is_number() && mine.get<double>() != 0) {
          ratio = theirs.get<double>() / mine.get<double>();
        }
        rows.push_back({{"scenario", verdict.at("scenario")},
                        {"assertion", row.at("assertion")},
                        {"a", row.at("measured_text")},
                        {"b", other.at("measured_text")},
                        {"ratio", std::move(ratio)},
                        {"a_holds", row.at("holds")},
                        {"b_holds", other.at("holds")}});
      }
    }
  } catch (const Json::exception&) {
    return Error{"these are not verdicts that nbx scenario --json printed"};
  }
  if (rows.empty()) {
    return Error{"the two have no assertion of a scenario in common"};
  }
  return rows;
}

}  // namespace nbx::scenario
