// JSON Schemas from the model. They say what a schema can say; references, sums and the like are left to `nbx check`.
#include <algorithm>

#include "config/generate.hpp"
#include "config/model.hpp"

namespace nbx::config {
namespace {

/// References are URIs: no spaces.
std::string definition_name(const Structure& structure) {
  std::string name = structure.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

Json reference(const Structure& structure) { return {{"$ref", "#/definitions/" + definition_name(structure)}}; }

Json schema_of(const Type& type) {
  switch (type.kind) {
    case Type::Kind::scalar:
      return type.schema;
    case Type::Kind::structure:
      return reference(*type.structure);
    case Type::Kind::list:
      break;
  }
  const Json element = schema_of(type.element.front());
  Json list = {{"type", "array"}, {"items", element}};
  return type.one_or_many ? Json::object({{"anyOf", Json::array({element, list})}}) : list;
}

/// Exactly one of the keys of a choice, or at most one.
Json exclusion(const Structure& structure, int choice) {
  Json alternatives = Json::array();
  for (const Key& key : structure.keys) {
    if (key.choice == choice) {
      alternatives.push_back(Json::object({{"required", Json::array({key.name})}}));
    }
  }
  if (!structure.choices[static_cast<std::size_t>(choice)].required) {
    alternatives.push_back(Json::object({{"not", Json::object({{"anyOf", alternatives}})}}));
  }
  return Json::object({{"oneOf", alternatives}});
}

Json mapping_schema(const Structure& structure) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const Key& key : structure.keys) {
    Json property = schema_of(key.type);
    property["description"] = key.doc;
    properties[key.name] = std::move(property);
    if (key.required) {
      required.push_back(key.name);
    }
  }
  Json out = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) {
    out["required"] = required;
  }
  Json exclusions = Json::array();
  for (std::size_t choice = 0; choice < structure.choices.size(); ++choice) {
    exclusions.push_back(exclusion(structure, static_cast<int>(choice)));
  }
  if (!exclusions.empty()) {
    out["allOf"] = exclusions;
  }
  return out;
}

const Key& key_named(const Structure& structure, const std::string& name) {
  for (const Key& key : structure.keys) {
    if (key.name == name) {
      return key;
    }
  }
  return structure.keys.front();
}

/// Whether a mapping without keys is complete, so that the bare name of the alternative will do.
bool may_be_bare(const Key& key) {
  if (key.type.kind != Type::Kind::structure) {
    return false;
  }
  for (const Key& inner : key.type.structure->keys) {
    if (inner.required) {
      return false;
    }
  }
  return true;
}

Json structure_schema(const Structure& structure) {
  Json alternatives = Json::array({mapping_schema(structure)});
  if (!structure.shorthand.empty()) {
    alternatives.push_back(schema_of(key_named(structure, structure.shorthand).type));
  }
  if (structure.bare_names) {
    Json names = Json::array();
    for (const Key& key : structure.keys) {
      if (may_be_bare(key)) {
        names.push_back(key.name);
      }
    }
    alternatives.push_back(Json::object({{"enum", names}}));
  }
  Json out = alternatives.size() == 1 ? alternatives.front() : Json::object({{"anyOf", alternatives}});
  if (!structure.doc.empty()) {
    out["description"] = structure.doc;
  }
  return out;
}

std::string schema(const Model& model, const std::string& title) {
  Json definitions = Json::object();
  for (const Structure& structure : model) {
    definitions[definition_name(structure)] = structure_schema(structure);
  }
  const Json out = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                    {"title", title},
                    {"type", "object"},
                    {"allOf", {reference(model.front())}},
                    {"definitions", definitions}};
  return out.dump(2) + "\n";
}

}  // namespace

std::string cluster_schema() { return schema(cluster_model(), "NeuronaBox cluster file"); }
std::string job_schema() { return schema(job_model(), "NeuronaBox job"); }
std::string scenario_schema() { return schema(scenario_model(), "NeuronaBox scenario"); }
std::string profile_schema() { return schema(profile_model(), "NeuronaBox profile"); }
std::string nic_schema() { return schema(nic_model(), "NeuronaBox NIC"); }

}  // namespace nbx::config
