// Streams are queues drained by one host thread each; events are points in a queue.
#include <chrono>

#include "internal.hpp"

namespace phantom {

void Mark::complete() {
  std::lock_guard lock(mu_);
  done_ = true;
  nanos_ = std::chrono::steady_clock::now().time_since_epoch().count();
  cv_.notify_all();
}
void Mark::wait() {
  std::unique_lock lock(mu_);
  cv_.wait(lock, [&] { return done_; });
}
bool Mark::done() {
  std::lock_guard lock(mu_);
  return done_;
}
uint64_t Mark::nanos() {
  std::lock_guard lock(mu_);
  return nanos_;
}

// Handle 0 and the two special handles mean the context's default stream. Its implicit
// ordering against other streams is not modelled.
CUstream_st* resolve_stream(CUstream s) {
  if (s != nullptr && s != CU_STREAM_LEGACY && s != CU_STREAM_PER_THREAD) {
    return s;
  }
  static std::mutex mu;
  static std::map<int, CUstream_st*> defaults;
  auto* c = current_context();
  int dev = c ? c->device : 0;
  std::lock_guard lock(mu);
  auto& d = defaults[dev];
  if (!d) {
    d = new CUstream_st(dev, 0);
  }
  return d;
}

namespace {
std::mutex all_mu;
std::vector<CUstream_st*> all;  // for whole-context synchronisation
}  // namespace

}  // namespace phantom

using namespace phantom;

void CUstream_st::enqueue(std::function<void()> op) {
  std::lock_guard lock(mu_);
  ops_.push_back(std::move(op));
  if (!started_) {
    started_ = true;
    std::thread([this] { loop(); }).detach();
  }
  cv_.notify_one();
}
void CUstream_st::loop() {
  for (;;) {
    std::function<void()> op;
    {
      std::unique_lock lock(mu_);
      cv_.wait(lock, [&] { return !ops_.empty() || closing_; });
      if (ops_.empty()) {
        break;
      }
      op = std::move(ops_.front());
      ops_.pop_front();
      busy_ = true;
    }
    op();
    std::lock_guard lock(mu_);
    busy_ = false;
  }
  delete this;
}
std::shared_ptr<Mark> CUstream_st::mark() {
  auto m = std::make_shared<Mark>();
  {
    std::lock_guard lock(mu_);
    if (!started_) {
      m->complete();
      return m;
    }
  }
  enqueue([m] { m->complete(); });
  return m;
}
bool CUstream_st::idle() {
  std::lock_guard lock(mu_);
  return ops_.empty() && !busy_;
}
void CUstream_st::close() {
  {
    std::lock_guard lock(mu_);
    if (started_) {
      closing_ = true;
      cv_.notify_one();
      return;
    }
  }
  delete this;
}

PHANTOM_EXPORT CUresult cuStreamCreateWithPriority(CUstream* s, unsigned flags, int prio) {
  static uint64_t ids = 16;
  auto* c = current_context();
  *s = new CUstream_st(c ? c->device : 0, flags, prio);
  std::lock_guard lock(all_mu);
  (*s)->id = ids++;
  all.push_back(*s);
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamCreate(CUstream* s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
PHANTOM_EXPORT CUresult cuStreamDestroy(CUstream s) {
  {
    std::lock_guard lock(all_mu);
    std::erase(all, s);
  }
  s->close();
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamSynchronize(CUstream s) {
  resolve_stream(s)->mark()->wait();
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamQuery(CUstream s) {
  return resolve_stream(s)->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
PHANTOM_EXPORT CUresult cuStreamGetPriority(CUstream s, int* p) {
  return *p = resolve_stream(s)->priority, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamGetFlags(CUstream s, unsigned* f) {
  return *f = resolve_stream(s)->flags, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamGetId(CUstream s, unsigned long long* id) {
  return *id = resolve_stream(s)->id, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamGetDevice(CUstream s, CUdevice* d) {
  return *d = resolve_stream(s)->device, CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  std::shared_ptr<Mark> m;
  {
    std::lock_guard lock(e->mu);
    m = e->mark;
  }
  if (!m->done()) {
    resolve_stream(s)->enqueue([m] { m->wait(); });
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void* arg) {
  resolve_stream(s)->enqueue([=] { fn(arg); });
  return CUDA_SUCCESS;
}
#undef cuCtxSynchronize
PHANTOM_EXPORT CUresult cuCtxSynchronize() {
  std::vector<std::shared_ptr<Mark>> marks;
  {
    std::lock_guard lock(all_mu);
    for (auto* s : all) {
      marks.push_back(s->mark());
    }
  }
  marks.push_back(resolve_stream(nullptr)->mark());
  for (auto& m : marks) {
    m->wait();
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuCtxSynchronize_v2(CUcontext) { return cuCtxSynchronize(); }

// ---- capture: streams never capture here -----------------------------------------------
PHANTOM_EXPORT CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* st) {
  return *st = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
#undef cuStreamGetCaptureInfo
PHANTOM_EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g,
                                                  const CUgraphNode** deps, size_t* n) {
  *st = CU_STREAM_CAPTURE_STATUS_NONE;
  if (id) {
    *id = 0;
  }
  if (g) {
    *g = nullptr;
  }
  if (deps) {
    *deps = nullptr;
  }
  if (n) {
    *n = 0;
  }
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g,
                                                  const CUgraphNode** deps, const CUgraphEdgeData** edges, size_t* n) {
  if (edges) {
    *edges = nullptr;
  }
  return cuStreamGetCaptureInfo_v2(s, st, id, g, deps, n);
}
PHANTOM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

// ---- events ---------------------------------------------------------------------------------
PHANTOM_EXPORT CUresult cuEventCreate(CUevent* e, unsigned flags) {
  *e = new CUevent_st;
  (*e)->flags = flags;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuEventDestroy(CUevent e) { return delete e, CUDA_SUCCESS; }
PHANTOM_EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  auto m = std::make_shared<Mark>();
  {
    std::lock_guard lock(e->mu);
    e->mark = m;
  }
  resolve_stream(s)->enqueue([m] { m->complete(); });
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned) { return cuEventRecord(e, s); }
PHANTOM_EXPORT CUresult cuEventQuery(CUevent e) {
  std::lock_guard lock(e->mu);
  return e->mark->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
PHANTOM_EXPORT CUresult cuEventSynchronize(CUevent e) {
  std::shared_ptr<Mark> m;
  {
    std::lock_guard lock(e->mu);
    m = e->mark;
  }
  m->wait();
  return CUDA_SUCCESS;
}
#undef cuEventElapsedTime
PHANTOM_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  *ms = float(double(b->mark->nanos()) - double(a->mark->nanos())) / 1e6f;
  return CUDA_SUCCESS;
}
PHANTOM_EXPORT CUresult cuEventElapsedTime_v2(float* ms, CUevent a, CUevent b) { return cuEventElapsedTime(ms, a, b); }
