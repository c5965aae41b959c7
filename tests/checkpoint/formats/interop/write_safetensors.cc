// write_safetensors OUT: lays out the tensors that standard input lists, one per line as JSON, and writes the file with
// the data that comes with them. For the tests that give what this library writes to the safetensors package.
//
//   {"name":"w","dtype":"F32","shape":[2],"data":[0,0,128,63,0,0,0,64]}       data: the bytes
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/formats/safetensors/write_header.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<reshard::safetensors::SafetensorsTensor> tensors;
  std::vector<std::string> data;
  for (std::string line; std::getline(std::cin, line);) {
    const auto tensor = nlohmann::json::parse(line);
    tensors.push_back({tensor["name"], tensor["dtype"], tensor["shape"]});
    const auto bytes = tensor["data"].get<std::vector<uint8_t>>();
    data.emplace_back(bytes.begin(), bytes.end());
  }
  const auto layout = reshard::safetensors::LayOutSafetensors(tensors, {});
  if (!layout.ok()) {
    std::cerr << layout.status() << "\n";
    return 1;
  }
  std::string file = layout->head;
  file.resize(layout->bytes);
  for (size_t i = 0; i < data.size(); ++i) {
    const auto& place = layout->places[i];
    if (place.length != static_cast<int64_t>(data[i].size())) return 3;
    file.replace(static_cast<size_t>(place.at), data[i].size(), data[i]);
  }
  std::ofstream out(argv[1], std::ios::binary);
  out << file;
  return out.flush() ? 0 : 5;
}
