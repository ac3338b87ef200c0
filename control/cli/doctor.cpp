#include "doctor/doctor.hpp"

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command.hpp"
#include "report/to_json.hpp"

namespace nbx::cli {

Body doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "print one JSON document");
  app.footer("Exit status 1: something is missing.\n\nExample: nbx doctor");
  return [json] {
    const std::vector<nbx::doctor::Finding> findings = nbx::doctor::examine();
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const nbx::doctor::Finding& finding : findings) {
      rows.push_back({{"about", finding.about},
                      {"verdict", name(finding.verdict)},
                      {"found", finding.found},
                      {"fix", finding.fix}});
    }
    if (*json) {
      std::cout << nlohmann::ordered_json{{"findings", rows}}.dump(2) << '\n';
    } else {
      for (const nbx::doctor::Finding& finding : findings) {
        std::cout << name(finding.verdict) << std::string(9 - std::string_view(name(finding.verdict)).size(), ' ')
                  << finding.about << ": " << finding.found << '\n';
        if (!finding.fix.empty()) {
          std::cout << std::string(9, ' ') << "fix: " << finding.fix << '\n';
        }
      }
    }
    return std::any_of(findings.begin(), findings.end(),
                       [](const auto& finding) { return finding.verdict == nbx::doctor::Verdict::missing; })
               ? exit_failed
               : 0;
  };
}

}  // namespace nbx::cli
