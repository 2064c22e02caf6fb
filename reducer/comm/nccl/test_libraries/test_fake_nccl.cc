// Libraries that pretend to be NCCL, for the tests of load_nccl(). The build compiles this file
// several times, with FAKE_VERSION and perhaps FAKE_WITHOUT_ALL_REDUCE, or FAKE_IS_NOT_NCCL, set.
// They have the names alone: only ncclGetVersion may be called.
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

#ifdef FAKE_IS_NOT_NCCL
FAKE_EXPORT int some_other_library() { return 1; }
#else
FAKE_EXPORT int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return FAKE_VERSION == 0 ? 3 : 0;
}
#define FAKE(name) \
  FAKE_EXPORT int name() { return 3; }
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRankConfig)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclGetErrorString)
FAKE(ncclGetLastError)
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommCount)
FAKE(ncclCommCuDevice)
FAKE(ncclCommUserRank)
FAKE(ncclRedOpCreatePreMulSum)
FAKE(ncclRedOpDestroy)
FAKE(ncclBroadcast)
#ifndef FAKE_WITHOUT_ALL_REDUCE
FAKE(ncclAllReduce)
#endif
FAKE(ncclReduceScatter)
FAKE(ncclAllGather)
FAKE(ncclSend)
FAKE(ncclRecv)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
FAKE(ncclCommFinalize)
FAKE(ncclCommSplit)
#endif
