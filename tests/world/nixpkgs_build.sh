# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2086,SC2154,SC2164  # Nix sets the variables, and starts it with -e
# The phases of nixpkgs that deploy/nix/package.nix has to do with, in their order.
# Nix's own home directory must never exist, and where ccache is installed meson would make it.
export HOME="$PWD"
cp -r "$src" source
chmod -R u+w source
cd source
eval "$postPatch"
meson setup build --buildtype="$mesonBuildType" --prefix="$out" --bindir="$out/bin" --libexecdir="$out/libexec" \
	--mandir="$out/share/man" $mesonFlags
ninja -C build $ninjaFlags
meson install -C build --no-rebuild
eval "$postInstall"
eval "$postFixup"
