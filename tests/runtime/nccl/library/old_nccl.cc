// A library that says it is NCCL 2.17.1, for the test of what is told about one that is too old.
extern "C" int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = 21701;
  return 0;
}
