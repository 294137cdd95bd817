# Pando. `make` alone explains itself. Every target is a script in scripts/; the environment they build in is
# scripts/env.sh.

MOUNT ?= ./mnt
SERVERS ?= 4
N ?= 50
PEERS ?= ./peers
export MOUNT SERVERS DIR PROFILE DURABILITY TIME PREFIX DESTDIR CARGO_TARGET_DIR PEERS RECORD

.PHONY: help setup build install up down check test soak fuzz posix stress flaky bench peers peers-down instructions flame env clean
.DEFAULT_GOAL := help

help:
	@echo 'make up        install what is missing, build, start a cluster of 4 servers, mount it at ./mnt'
	@echo '               (MOUNT=dir  SERVERS=n  DIR=cluster-folder  DURABILITY=sync|async)'
	@echo 'make down      unmount and stop exactly what `make up` started (DIR=cluster-folder)'
	@echo 'make test      all tests, as CI runs them; as root everything, else what needs no root'
	@echo 'make check     in two minutes, what an edit is most likely to have broken'
	@echo 'make soak      the simulator with fresh seeds (SEEDS=n of them, default 1000)'
	@echo 'make fuzz      fuzzes every decoder and a server (TIME=seconds for each, default 60)'
	@echo 'make flaky     the tests with real processes and mounts, N=50 times over'
	@echo 'make posix     pjdfstest on a mount of its own (as root)'
	@echo 'make stress    fsx and stress-ng on two mounts at once while servers are killed (as root; MINUTES=n, default 30)'
	@echo 'make bench     Pando beside the machine and beside other filesystems, in one run: writes docs/performance.md (half an hour; as root)'
	@echo 'make peers     starts other filesystems to measure beside: tmpfs, ext4, bindfs, MooseFS, CephFS (as root; PEERS=folder)'
	@echo 'make peers-down   unmount and stop exactly what `make peers` started, and remove it'
	@echo 'make instructions   instructions of one operation, against the baseline (RECORD=reason makes a new one)'
	@echo 'make flame     where time goes: docs/flame/*.svg and docs/profile.md, by perf'
	@echo 'make setup     only install what is missing      make build    only build'
	@echo 'make install   the program in /usr/local/bin, and the helper that mount(8) and fstab need (PREFIX=dir  DESTDIR=dir)'
	@echo 'make env       print the build environment, for: eval "$$(make -s env)"'
	@echo 'make clean     delete what was built'

setup:
	@scripts/setup.sh

build:
	@scripts/build.sh

install:
	@scripts/install.sh

up:
	@scripts/up.sh

down:
	@scripts/down.sh

test:
	@scripts/test.sh

check:
	@scripts/check.sh

soak:
	@scripts/soak.sh

fuzz:
	@scripts/fuzz.sh

posix:
	@scripts/posix.sh

stress:
	@scripts/stress.sh $(MINUTES)

flaky:
	@scripts/test.sh --only 'process|mount' --repeat $(N)

bench:
	@scripts/bench.sh

peers:
	@scripts/peers.sh up

peers-down:
	@scripts/peers.sh down

instructions:
	@scripts/instructions.sh $(if $(RECORD),--record "$$RECORD")

flame:
	@scripts/flame.sh

env:
	@bash -c 'source scripts/env.sh; for v in PATH CARGO_TARGET_DIR ROCKSDB_LIB_DIR PANDO_CI_COMMIT; do echo "export $$v=$${!v@Q}"; done'

clean:
	@bash -c 'source scripts/env.sh; cargo clean; rm -rf "$$PANDO_CACHE/logs"'
