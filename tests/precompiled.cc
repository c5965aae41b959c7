// Headers that most tests include, precompiled once for all test programs.
int main() {}
