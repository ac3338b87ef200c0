// The records between the preload library and the ghosts, and the factors of scaled reductions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "nccl-glue/announce/codec.hpp"
#include "nccl-glue/announce/scale.hpp"

namespace nbx::nccl::announce {
namespace {

using testing::HasSubstr;

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) {
    result.push_back(static_cast<std::byte>(value));
  }
  return result;
}

/// What the decoder says to a stream of exactly these bytes: nothing when it is content.
std::string complaint(ConstBytes stream) {
  Decoder decoder;
  decoder.feed(stream);
  for (;;) {
    const auto record = decoder.next();
    if (!record) {
      return record.error().message;
    }
    if (!record->has_value()) {
      return {};
    }
  }
}

template <Body T>
std::string complaint(Kind kind, const T& body) {
  return complaint(encode(kind, body));
}

TEST(AnnounceCodec, LaysRecordsOutAsDocumented) {
  EXPECT_EQ(
      encode(Kind::hello, Hello{.nccl_version = 22907, .pid = 258, .inflate = 1, .variables = {1, 2, 3, 4, 5, 6}}),
      bytes({44, 0, 0, 0, 1, 0, 0, 0, 0x31, 0x58, 0x42, 0x4e, 0x7b, 0x59, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0,
             1,  0, 0, 0, 2, 0, 0, 0, 3,    0,    0,    0,    4,    0,    0, 0, 5, 0, 0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(encode(Kind::operation, OperationCall{.comm = 1,
                                                  .sequence = 2,
                                                  .count = 0x0102030405,
                                                  .root = 3,
                                                  .collective = Collective::broadcast,
                                                  .type = DataType::bf16,
                                                  .op = RedOp::avg}),
            bytes({36, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
                   0,  0, 0, 0, 5, 4, 3, 2, 1, 0, 0, 0, 3, 0, 0, 0, 0, 9, 4, 0}));
  EXPECT_EQ(encode(Kind::failure, std::string_view("no")), bytes({6, 0, 0, 0, 65, 0, 0, 0, 'n', 'o'}));
}

TEST(AnnounceCodec, GivesRecordsBackWhereverTheStreamIsCut) {
  std::vector<std::byte> stream;
  const auto add = [&](const std::vector<std::byte>& record) {
    stream.insert(stream.end(), record.begin(), record.end());
  };
  add(encode(Kind::comm_split, CommSplit{.parent = 7, .comm = 8, .color = -1, .key = -2}));
  add(encode(Kind::failure, std::string_view("channel 0\nchannel 1")));
  add(encode(Kind::group_end, CommRef{}));
  for (std::size_t cut = 0; cut <= stream.size(); cut++) {
    Decoder decoder;
    std::vector<Kind> kinds;
    for (const ConstBytes part : {ConstBytes(stream).first(cut), ConstBytes(stream).subspan(cut)}) {
      decoder.feed(part);
      for (auto record = decoder.next(); record && record->has_value(); record = decoder.next()) {
        kinds.push_back((*record)->kind);
        if ((*record)->kind == Kind::comm_split) {
          EXPECT_EQ((*record)->as<CommSplit>().color, -1);
          EXPECT_EQ((*record)->as<CommSplit>().comm, 8U);
        } else if ((*record)->kind == Kind::failure) {
          EXPECT_EQ((*record)->text(), "channel 0\nchannel 1");
        }
      }
    }
    EXPECT_EQ(kinds, (std::vector{Kind::comm_split, Kind::failure, Kind::group_end})) << "cut at " << cut;
  }
}

TEST(AnnounceCodec, CutsTextsThatNoRecordHolds) {
  const auto record = encode(Kind::failure, std::string(2 * record_size_max, 'x'));
  EXPECT_EQ(record.size(), sizeof(std::uint32_t) + record_size_max);
  EXPECT_EQ(complaint(record), "");
}

TEST(AnnounceCodec, RefusesSizesOutOfRange) {
  EXPECT_THAT(complaint(bytes({3, 0, 0, 0})), HasSubstr("record of 3 bytes"));
  EXPECT_THAT(complaint(bytes({0, 0, 0, 0})), HasSubstr("record of 0 bytes"));
  EXPECT_THAT(complaint(bytes({0x01, 0x10, 0, 0})), HasSubstr("record of 4097 bytes"));
  EXPECT_THAT(complaint(bytes({0xff, 0xff, 0xff, 0xff})), HasSubstr("record of 4294967295 bytes"));
  EXPECT_EQ(complaint(bytes({0x00, 0x10, 0})), "");  // not known yet
}

TEST(AnnounceCodec, RefusesKindsAndSizesThatDoNotFit) {
  EXPECT_THAT(complaint(bytes({4, 0, 0, 0, 0, 0, 0, 0})), HasSubstr("unknown kind"));
  EXPECT_THAT(complaint(bytes({4, 0, 0, 0, 10, 0, 0, 0})), HasSubstr("unknown kind"));
  for (std::uint32_t kind = 1; kind <= 64; kind += kind == 9 ? 55 : 1) {
    std::vector<std::byte> body(1);
    EXPECT_THAT(complaint(encode(static_cast<Kind>(kind), ConstBytes(body))), HasSubstr("wrong size")) << kind;
  }
}

TEST(AnnounceCodec, RefusesFieldsThatAReaderWouldTrust) {
  EXPECT_THAT(complaint(Kind::hello, Hello{.magic_number = 1, .variables = {}}), HasSubstr("magic"));
  EXPECT_EQ(complaint(Kind::hello, Hello{.variables = {1U << 30U, 1U << 16U, 0, 4096, 64, 64}}), "");
  for (const auto& [wrong, name] : {std::pair<Variables, const char*>{{.buffsize = (1U << 30U) + 1}, "NCCL_BUFFSIZE"},
                                    {{.ll_buffsize = 65535}, "NCCL_LL_BUFFSIZE"},
                                    {{.ll128_buffsize = 1}, "NCCL_LL128_BUFFSIZE"},
                                    {{.p2p_net_chunksize = 4095}, "NCCL_P2P_NET_CHUNKSIZE"},
                                    {{.min_p2p_nchannels = 65}, "NCCL_MIN_P2P_NCHANNELS"},
                                    {{.max_p2p_nchannels = 0xffffffff}, "NCCL_MAX_P2P_NCHANNELS"}}) {
    EXPECT_THAT(complaint(Kind::hello, Hello{.variables = wrong}), HasSubstr(name));
  }
  EXPECT_THAT(complaint(Kind::comm_init, CommInit{.ranks = 2, .rank = 2}), HasSubstr("outside the communicator"));
  EXPECT_THAT(complaint(Kind::comm_init, CommInit{.ranks = 2, .rank = -1}), HasSubstr("outside the communicator"));
  EXPECT_THAT(complaint(Kind::comm_init, CommInit{.ranks = 0, .rank = 0}), HasSubstr("outside the communicator"));
  EXPECT_EQ(complaint(Kind::comm_init, CommInit{.ranks = 2, .rank = 1}), "");

  const OperationCall fine{.collective = Collective::recv, .type = DataType::bf16, .op = RedOp::avg};
  EXPECT_EQ(complaint(Kind::operation, fine), "");
  for (const int collective : {5, 8, 255}) {
    OperationCall call = fine;
    call.collective = static_cast<Collective>(collective);
    EXPECT_THAT(complaint(Kind::operation, call), HasSubstr("no such collective"));
  }
  OperationCall call = fine;
  call.type = static_cast<DataType>(10);
  EXPECT_THAT(complaint(Kind::operation, call), HasSubstr("no such data type"));
  call = fine;
  call.op = static_cast<RedOp>(5);
  EXPECT_THAT(complaint(Kind::operation, call), HasSubstr("no such reduction"));
  call = fine;
  call.root = -1;
  EXPECT_THAT(complaint(Kind::operation, call), HasSubstr("negative root"));

  EXPECT_EQ(complaint(Kind::decision, OperationDecision{.protocol = Protocol::simple, .channels = 1}), "");
  EXPECT_THAT(complaint(Kind::decision, OperationDecision{}), HasSubstr("no channels"));
  EXPECT_THAT(complaint(Kind::decision, OperationDecision{.algorithm = static_cast<Algorithm>(2), .channels = 1}),
              HasSubstr("no such algorithm"));
  EXPECT_THAT(complaint(Kind::decision, OperationDecision{.protocol = static_cast<Protocol>(3), .channels = 1}),
              HasSubstr("no such protocol"));
}

TEST(AnnounceCodec, ChecksTheTailOfShrink) {
  for (const auto& [ranks, tail, fits] :
       {std::tuple{9U, 2U, true}, {8U, 1U, true}, {8U, 2U, false}, {9U, 1U, false}, {0xffffffffU, 1U, false}}) {
    const CommShrink shrink{.parent = 1, .comm = 2, .parent_ranks = ranks};
    std::vector<std::byte> body(sizeof shrink + tail);
    std::memcpy(body.data(), &shrink, sizeof shrink);
    EXPECT_EQ(complaint(encode(Kind::comm_shrink, ConstBytes(body))).empty(), fits) << ranks << ' ' << tail;
  }
}

TEST(AnnounceCodec, SurvivesNoise) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same noise every time
  for (int round = 0; round < 20'000; round++) {
    std::vector<std::byte> stream(random() % 64);
    for (std::byte& byte : stream) {
      byte = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 12);
    }
    if (stream.size() >= 4) {
      stream[1] = stream[2] = stream[3] = std::byte{0};  // mostly sizes that are let through
    }
    static_cast<void>(complaint(stream));
  }
}

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
}

std::uint16_t first_16(const std::array<std::byte, 8>& element) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, element.data(), sizeof bits);
  return bits;
}

TEST(AnnounceScale, RoundsToTheNearestHalf) {
  EXPECT_EQ(first_16(*scalar(DataType::f16, 1.0)), 0x3c00);  // IEEE 754-2019, 3.6
  EXPECT_EQ(first_16(*scalar(DataType::f16, 0.5)), 0x3800);
  EXPECT_EQ(first_16(*scalar(DataType::f16, 1.0 / 3)), 0x3555);
  EXPECT_EQ(first_16(*scalar(DataType::f16, 2047.75)), 0x6800);  // carries into the exponent
  EXPECT_EQ(first_16(*scalar(DataType::f16, 65504)), 0x7bff);
  EXPECT_EQ(first_16(*scalar(DataType::f16, 100'000)), 0x7c00);
  EXPECT_EQ(first_16(*scalar(DataType::f16, std::ldexp(1.0, -24))), 0x0001);
  for (int ranks = 1; ranks <= 20'000; ranks++) {
    const double factor = 1.0 / ranks;
    const std::uint16_t bits = first_16(*scalar(DataType::f16, factor));
    const double error = std::fabs(half_value(bits) - factor);
    EXPECT_LE(error, std::fabs(half_value(static_cast<std::uint16_t>(bits + 1)) - factor)) << ranks;
    EXPECT_LE(error, std::fabs(half_value(static_cast<std::uint16_t>(bits - 1)) - factor)) << ranks;
  }
}

TEST(AnnounceScale, KnowsTheOtherTypes) {
  EXPECT_EQ(first_16(*scalar(DataType::bf16, 1.0)), 0x3f80);
  EXPECT_EQ(first_16(*scalar(DataType::bf16, 1.0 / 3)), 0x3eab);
  float single = 0;
  std::memcpy(&single, scalar(DataType::f32, 1.0 / 3)->data(), sizeof single);
  EXPECT_EQ(single, 1.0F / 3);
  double twice = 0;
  std::memcpy(&twice, scalar(DataType::f64, 1.0 / 3)->data(), sizeof twice);
  EXPECT_EQ(twice, 1.0 / 3);
  for (const DataType type : {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64, DataType::u64}) {
    EXPECT_FALSE(scalar(type, 0.5).has_value());
  }
}

}  // namespace
}  // namespace nbx::nccl::announce
