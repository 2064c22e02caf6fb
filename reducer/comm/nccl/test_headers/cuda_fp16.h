// For nccl_header_test: nccl.h includes this header of CUDA's, and takes nothing of it.
#pragma once
