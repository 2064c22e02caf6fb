// For nccl_header_test: what nccl.h takes of CUDA's header, so that the headers of many versions of
// NCCL are looked at where there is no CUDA toolkit. The handles are named as CUDA names them.
#pragma once

#define CUDART_VERSION 11000

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
