# A thin front: every step installs the Debian packages it lacks (tools/packages), then calls CMake.
#
#     make             build, in release mode, into build/
#     make demo        train a GPT on the King James Bible with one rank per core
#     make check       the quick tests
#     make check-all   everything: sanitizers, torture, fuzzing, both compilers
#     make check-long  searches that take an hour or more
#     make bench       measure side by side with other systems
#     make check-peers  files to and from torch, safetensors, transformers, and PyTorch's samples
#     make peers       install the newest of these systems from PyPI, into build/peers
#     make install     to $(DESTDIR)$(prefix), which is /usr/local unless told
#     make golden      recompute the golden test values with PyTorch
#     make format      clang-format over the tree
#     make lint        clang-tidy over the tree
#     make docs        the reference, into build/docs
#     make deb         Debian packages, into build/deb
#     make clean       remove build/
prefix = /usr/local
DESTDIR =
JOBS = $(shell nproc)
BENCHES = '' comm ddp compute ops data looking checkpoint offload sharded parallel

all: build

build: packages-build
	cmake --preset release -DCMAKE_INSTALL_PREFIX=$(prefix)
	cmake --build build -j $(JOBS)

packages-%:
	@tools/packages $*

demo: packages-demo build
	tools/demo

check: packages-check build
	tools/run_tests build -L quick

check-all: packages-check packages-check-all build
	tools/check_all

check-long: packages-check packages-check-all build
	ctest --test-dir build -L long --output-on-failure -V

check-peers: packages-check packages-bench build
	ctest --test-dir build -R '^(peers|samples)_long_test$$' --output-on-failure -V

peers: packages-bench
	tools/peers

bench: packages-bench build
	-tools/peers
	status=0; for part in $(BENCHES); do bench/run $$part || status=1; done; exit $$status

install: build
	DESTDIR=$(DESTDIR) cmake --install build --prefix $(prefix)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

golden: packages-golden
	for script in tests/golden/*.py; do python3 $$script || exit 1; done

format: packages-check
	git ls-files '*.c' '*.h' | xargs clang-format -i

lint: packages-lint build
	git ls-files 'src/*.c' | xargs -n 8 -P $(JOBS) clang-tidy -p build --quiet

docs: packages-docs
	mkdir -p build/docs
	doxygen docs/Doxyfile

deb: packages-build packages-docs packages-deb
	tools/make_deb

clean:
	rm -rf build

.PHONY: all build demo check check-all check-long check-peers bench peers install golden format
.PHONY: lint docs deb clean
