#include "reducer/comm/gloo/gloo_context.h"

#include <new>
#include <utility>

#include "reducer/comm/checked_store.h"
#include "reducer/comm/gloo/mesh.h"

namespace lockstep {
inline namespace LOCKSTEP_NS {

Result<std::shared_ptr<GlooContext>> GlooContext::connect(const std::shared_ptr<Store>& store,
                                                          int rank, int size,
                                                          const GlooContextOptions& options) try {
  if (store == nullptr) return failed(no_store());
  CheckedStore checked(store);
  Result<std::unique_ptr<Mesh>> mesh = Mesh::connect(checked, rank, size, options);
  if (!mesh) return failed(std::move(mesh.error()));
  return std::make_shared<GlooContext>(std::move(*mesh));
} catch (const std::bad_alloc&) {
  return failed(out_of_memory());
}

GlooContext::GlooContext(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
GlooContext::~GlooContext() = default;

int GlooContext::rank() const { return mesh_->rank(); }
int GlooContext::size() const { return mesh_->size(); }
Status GlooContext::health() const { return mesh_->health(); }
const std::string& GlooContext::why_no_shared_memory() const { return mesh_->why_no_rounds(); }

}  // namespace LOCKSTEP_NS
}  // namespace lockstep
