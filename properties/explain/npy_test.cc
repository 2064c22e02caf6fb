// Claims: what numpy.save() writes is read to the bit, and everything else gets one line.
#include "properties/explain/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::properties {
namespace {

using reference::DType;

class Npy : public testing::Test {
 protected:
  // The name has the process in it, because tests run beside each other.
  std::string file_ = (std::filesystem::path(testing::TempDir()) /
                       ("lockstep_npy_test." + std::to_string(::getpid()) + ".npy"))
                          .string();
  void TearDown() override { std::filesystem::remove(file_); }

  void write(const std::string& dictionary, const std::string& data, char version = 1) {
    std::ofstream out(file_, std::ios::binary);
    out << "\x93NUMPY" << version << '\0' << static_cast<char>(dictionary.size()) << '\0';
    if (version > 1) out << '\0' << '\0';
    out << dictionary << data;
  }

  std::string error() const {
    const Result<NpyArray> array = read_npy(file_);
    return array ? "none" : array.error().failure().detail;
  }
};

TEST_F(Npy, FloatsAreReadToTheBit) {
  for (const char version : {char{1}, char{2}, char{3}}) {
    write("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n",
          std::string("\x00\x00\x80\x3f\x01\x00\x00\x80", 8), version);
    const Result<NpyArray> array = read_npy(file_);
    ASSERT_TRUE(array) << array.error().to_string();
    EXPECT_EQ(array->dtype, DType::kFloat32);
    EXPECT_EQ(array->sizes, (std::vector<std::uint64_t>{2, 1}));
    EXPECT_EQ(array->bits, (std::vector<std::uint64_t>{0x3f800000, 0x80000001}));
    EXPECT_FALSE(array->is_column_major);
  }
}

TEST_F(Npy, NarrowAndComplexTypesAndScalars) {
  write("{'descr': '<f2', 'fortran_order': True, 'shape': (1,)}", std::string("\x34\x12", 2));
  EXPECT_EQ(read_npy(file_)->bits, (std::vector<std::uint64_t>{0x1234}));
  EXPECT_TRUE(read_npy(file_)->is_column_major);
  write("{'descr': '|V2', 'fortran_order': False, 'shape': ()}", std::string("\x34\x12", 2));
  EXPECT_EQ(read_npy(file_)->dtype, DType::kBFloat16);
  EXPECT_EQ(read_npy(file_)->bits.size(), 1U);
  write("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "abcdefgh");
  EXPECT_EQ(read_npy(file_)->bits.size(), 2U);
}

TEST_F(Npy, WhatIsNoSuchArrayGetsOneLine) {
  EXPECT_NE(error().find("there is no such file"), std::string::npos);
  std::ofstream(file_) << "text";
  EXPECT_NE(error().find("not an array that numpy.save() wrote"), std::string::npos);
  write("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "abcd");
  EXPECT_NE(error().find("its dtype is '>f4'"), std::string::npos);
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "abcd");
  EXPECT_NE(error().find("ends before its last element"), std::string::npos);
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "abcd");
  EXPECT_NE(error().find("its shape cannot be read, or it has more than"), std::string::npos);
  write("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "abcd");
  EXPECT_NE(error().find("its shape cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::properties
