#include "checkpoint/stores/url.h"

#include <cstdlib>
#include <string>

#include "tests/catch.h"

namespace reshard::stores {
namespace {

TEST_CASE("url: what is one, and its scheme") {
  CHECK(IsUrl("s3://bucket/key"));
  CHECK(IsUrl("https:/host"));
  CHECK_FALSE(IsUrl("a/b://c"));
  CHECK_FALSE(IsUrl("://x"));
  CHECK_FALSE(IsUrl("/a/b"));
  CHECK(SchemeOf("S3A://b") == "s3a");
  CHECK(SchemeOf("plain/path").empty());
  CHECK(SchemeOf("simplecache::S3://b") == "simplecache::s3");
  CHECK(SchemeOf("::s3://b").empty());
}

TEST_CASE("url: admitted as it is kept") {
  CHECK(*Admit("S3://bucket/a b/%41/") == "s3://bucket/a b/%41");
  CHECK(*Admit("hf://org/model") == "https://huggingface.co/org/model/resolve/main");
  CHECK(*Admit("hf://org/model@v1.0/model.safetensors") ==
        "https://huggingface.co/org/model/resolve/v1.0/model.safetensors");
  setenv("HF_ENDPOINT", "https://mirror.example/", 1);
  CHECK(*Admit("hf://org/model@refs%2Fpr%2F1") == "https://mirror.example/org/model/resolve/refs/pr/1");
  unsetenv("HF_ENDPOINT");
}

TEST_CASE("url: chains end with the outermost path") {
  CHECK(*Admit("simplecache::s3://bucket/key/") == "simplecache::s3://bucket/key");
  CHECK(*Admit("zip://step-1/::s3://b/runs.zip") == "zip::s3://b/runs.zip!/step-1");
  CHECK(*Admit("zip://::filecache::s3://b/runs.zip") == "zip::filecache::s3://b/runs.zip!");
  CHECK(*Admit("tar://a/b::zip://c::file:///x.zip") == "tar::zip::file:///x.zip!/c!/a/b");
  CHECK(*Admit("zip::s3://b/runs.zip!/step-1/model") == "zip::s3://b/runs.zip!/step-1/model");
  CHECK(*Admit("s3://bucket/a::b!") == "s3://bucket/a::b!");
}

TEST_CASE("url: what is refused") {
  for (const char* const url :
       {"s3://", "s3:///", "s3://u:p@h/x", "s3://b/../c", "s3://b/./c", "s3://b/a\nb", "zip://a::s3://",
        "zip://a::s3://u:p@h/x", "zip://../a::s3://b/x.zip", "zip://a!::s3://b/x.zip", "hf://org", "hf:///model",
        "hf://org/@x", "hf://org/model@", "http://host/x"}) {
    INFO(url);
    const absl::Status refused = Admit(url).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused.message().find("u:p") == std::string::npos);
  }
}

}  // namespace
}  // namespace reshard::stores
