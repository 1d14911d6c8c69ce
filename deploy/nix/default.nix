# SPDX-License-Identifier: Apache-2.0
# From a checkout: `nix-build deploy/nix` leaves result/bin/weir.
{
  pkgs ? import <nixpkgs> { },
}:

pkgs.callPackage ./package.nix { }
