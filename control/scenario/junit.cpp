// Verdicts as the XML that JUnit's runners write and test servers read.
#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "scenario/scenario.hpp"

namespace nbx::scenario {
namespace {

std::size_t failures(const Verdict& verdict) {
  return static_cast<std::size_t>(
      std::count_if(verdict.checks.begin(), verdict.checks.end(), [](const Check& check) { return !check.holds; }));
}

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(value.c_str());
}

void add_case(pugi::xml_node suite, const Verdict& verdict, const Check& check) {
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", verdict.name);
  set(node, "name", check.assertion.text);
  set(node, "file", *check.assertion.pos.file);
  set(node, "line", std::to_string(check.assertion.pos.line));
  if (check.holds) {
    return;
  }
  std::string measured = check.measured ? format(*check.measured, check.assertion.unit()) : std::string("not known");
  if (verdict.report.contains("failure")) {
    measured += "; the job did not end: " + verdict.report["failure"].get<std::string>();
  }
  pugi::xml_node failure = node.append_child("failure");
  set(failure, "message", "it is " + measured);
}

}  // namespace

std::string junit_xml(const std::vector<Verdict>& verdicts) {
  pugi::xml_document document;
  pugi::xml_node suites = document.append_child("testsuites");
  for (const Verdict& verdict : verdicts) {
    pugi::xml_node suite = suites.append_child("testsuite");
    set(suite, "name", verdict.name);
    set(suite, "tests", std::to_string(verdict.checks.size()));
    set(suite, "failures", std::to_string(failures(verdict)));
    for (const Check& check : verdict.checks) {
      add_case(suite, verdict, check);
    }
  }
  std::ostringstream text;
  document.save(text, "  ");
  return text.str();
}

}  // namespace nbx::scenario
