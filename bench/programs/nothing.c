// The smallest program: what is measured is its start and its end.
int main(void) { return 0; }
