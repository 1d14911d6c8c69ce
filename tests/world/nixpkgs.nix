# SPDX-License-Identifier: Apache-2.0
# What deploy/nix asks of nixpkgs, from this machine: every input is a path that names it, and mkDerivation builds with what is in
# /usr. @source takes the place of the checkout.
{ source }:
let
  lib = {
    cleanSource = path: source;
    makeLibraryPath = inputs: builtins.concatStringsSep ":" (map (input: "${input}/lib") inputs);
    licenses.asl20 = "Apache-2.0";
  };
  stdenv.mkDerivation =
    package:
    derivation (
      builtins.removeAttrs package [ "meta" ]
      // {
        name = "${package.pname}-${package.version}";
        system = builtins.currentSystem;
        builder = "/bin/sh";
        args = [
          "-eux"
          ./nixpkgs_build.sh
        ];
        PATH = "/usr/bin:/bin";
      }
    )
    // { inherit (package) pname version meta nativeBuildInputs buildInputs; };
  inputs = names: builtins.mapAttrs (name: optional: "/inputs/${name}") names;
in
{
  callPackage =
    file: given:
    let
      package = import file;
      wanted = builtins.functionArgs package;
      needed = builtins.removeAttrs wanted (builtins.filter (name: wanted.${name}) (builtins.attrNames wanted));
    in
    package (inputs needed // { inherit lib stdenv; } // given);
}
