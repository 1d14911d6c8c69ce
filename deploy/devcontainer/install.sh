#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A devcontainer's feature: put `weir`, which needs no library, its store of events and its man pages below /usr/local. Nothing is
# downloaded: `make dist` lays the program beside this file.
set -eu
cd "$(dirname "$0")"

stop() {
	echo "weir: $1" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || stop "only root may write to /usr/local"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) stop "there is no program for a machine of type $(uname -m)" ;;
esac
set -- weir-*-linux-"$arch".tar.gz
[ -f "$1" ] || stop "this copy of the feature has no program for $arch; build one with 'make dist' (amd64) or 'make dist-arm64'"
gzip -dc "$1" | tar -C /usr/local -xf - --strip-components=1
/usr/local/bin/weir version
