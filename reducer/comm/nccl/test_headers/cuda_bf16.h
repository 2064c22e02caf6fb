// For nccl_header_test: that CUDA has this type is what older nccl.h ask before they name it.
#pragma once

#define __CUDA_BF16_TYPES_EXIST__ 1
