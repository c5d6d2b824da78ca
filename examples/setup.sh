#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# setup.sh [build|test]: install what nvefs needs from the distribution.
#
# "build" (the default) is what building and examples/quickstart.sh need,
# "test" adds what tests/run.sh uses, and unpacks (not installs) Debian's kernel for
# the tests in a virtual machine. Asks nothing, says what it installs, and
# does nothing when all is there. Debian 12, Debian 13 and Ubuntu 24.04.
set -eu

# libssl-dev: pkg-config wants it for libnvme, whose package in Debian 12 forgets to name it.
build_packages="gcc libc6-dev meson ninja-build pkg-config python3 libfuse3-dev fuse3 libnvme-dev libssl-dev
liburing-dev libxxhash-dev libjson-c-dev libblkid-dev libcap-dev libseccomp-dev uuid-dev check fio scdoc util-linux mount"
test_packages="clang e2fsprogs fuse2fs attr acl git stress-ng procps valgrind
qemu-system-x86 busybox-static kmod xz-utils zstd fdisk nvme-cli sg3-utils libiscsi-bin"

die() {
	echo "setup.sh: $*" >&2
	exit 1
}

case "${1:-build}" in
build) wanted=$build_packages ;;
test) wanted="$build_packages $test_packages" ;;
--help | -h)
	sed -n '4,9s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*) die "$1: unknown set of packages: say build or test" ;;
esac

command -v dpkg-query >/dev/null ||
	die "no dpkg here: install these yourself, or their like: $(echo $wanted)"

missing=
for package in $wanted; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
# The kernel of the guest: without it those tests are skipped, so this is no reason to stop.
kernel() {
	[ "${1:-build}" != test ] || python3 "$(dirname "$0")/../tests/guest/kernel.py" fetch ||
		echo "setup.sh: the tests in a virtual machine will be skipped" >&2
}

[ -n "$missing" ] || {
	kernel "$@"
	exit 0
}

as_root=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || die "not root and no sudo: install as root:$missing"
	as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
	$as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -qq -y \
		-o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" </dev/null >"$log" 2>&1
}

echo "setup.sh: installing$missing"
# Package lists may be absent (a container) or too old to name what the mirror still has.
if ! apt install --no-install-recommends $missing; then
	if ! apt update || ! apt install --no-install-recommends $missing; then
		cat "$log" >&2
		die "apt-get could not install:$missing: see its message above"
	fi
fi
kernel "$@"
