#include "config/checks.hpp"
namespace nbx::config {
void check_cluster(const ClusterConfig&, Diagnostics&) {}
}  // namespace nbx::config
