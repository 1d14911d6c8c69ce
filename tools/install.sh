#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install Weir from its Debian package, after its sum was compared:
#
#   install.sh --package FILE-OR-URL --sha256 SUM [--yes]
#
# It says what it does before it does it, and asks on standard input, unless --yes. It reads one Debian package, a file or
# an https address, and compares that package's SHA-256 with SUM. It reads no SHA256SUMS and no signature, so SUM has to
# come from somewhere else than the package does: a release's page, your own build's SHA256SUMS. The libraries come
# from where this machine's packages come from.
set -eu

package='' sum='' yes=''
stop() {
	echo "install.sh: $1" >&2
	exit "${2:-2}"
}
while [ $# -gt 0 ]; do
	case $1 in
	--package | --sha256)
		[ $# -ge 2 ] || stop "$1 needs a value"
		if [ "$1" = --package ]; then package=$2; else sum=$2; fi
		shift
		;;
	--yes) yes=1 ;;
	*) stop "'$1' is not an option; there are --package FILE-OR-URL, --sha256 SUM and --yes" ;;
	esac
	shift
done
[ -n "$package" ] || stop "--package is missing: a file or an https address"
printf '%s\n' "$sum" | grep -qxE '[0-9a-f]{64}' ||
	stop "--sha256 is '$sum', which isn't 64 hexadecimal digits"
case $package in
https://*) command -v curl >/dev/null || stop "curl is missing, to get $package" 1 ;;
*://*) stop "'$package' is neither a file nor an https address" ;;
*) [ -f "$package" ] || stop "there is no file '$package'" ;;
esac
command -v apt-get >/dev/null || stop "this is no Debian or Ubuntu; build from the source instead (README.md)" 1
root=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || stop "only root may install packages, and there is no sudo" 1
	root=sudo
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt reads it as a user of its own
echo "install.sh: takes $package"
case $package in
https://*) curl -fsSL --proto '=https' -o "$work/weir.deb" "$package" || stop "can't get $package" 1 ;;
*) cp "$package" "$work/weir.deb" ;;
esac
is=$(sha256sum "$work/weir.deb" | cut -d ' ' -f 1)
[ "$is" = "$sum" ] || stop "the sum of $package is $is, not $sum; nothing was installed" 1
echo "install.sh: its sum is the one that was named"
echo "install.sh: installs it with the libraries that it needs: ${root:+$root }apt-get install weir.deb"
echo "install.sh: no service is started, and no setting of the machine changes"
if [ -z "$yes" ]; then
	printf 'go on? [y/N] '
	read -r answer || answer=
	case $answer in y | Y | yes) ;; *) stop "nothing was installed" 1 ;; esac
fi
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
[ -n "$(find /var/lib/apt/lists -name '*Packages*' 2>/dev/null | head -n 1)" ] || $root apt-get update -qq
$root apt-get install -y -qq --no-install-recommends "$work/weir.deb"
weir version
