# SPDX-License-Identifier: Apache-2.0
# Weir as nixpkgs has packages: `pkgs.callPackage ./package.nix { }`. The tests are left out: they need root and network namespaces.
{
  lib,
  stdenv,
  cmocka,
  curl,
  jansson,
  libidn2,
  libmicrohttpd,
  libpq,
  libpsl,
  libseccomp,
  libyaml,
  meson,
  ninja,
  patchelf,
  pkg-config,
  python3,
  sqlite,
  zlib,
  src ? lib.cleanSource ../..,
}:

stdenv.mkDerivation {
  pname = "weir";
  version = "0.1.0";
  inherit src;

  nativeBuildInputs = [
    meson
    ninja
    patchelf
    pkg-config
    python3
  ];

  buildInputs = [
    cmocka
    curl
    jansson
    libidn2
    libmicrohttpd
    libpq
    libpsl
    libseccomp
    libyaml
    sqlite
    zlib
  ];

  # A build of Nix's has no /usr.
  postPatch = ''
    find . -name meson.build -exec sed -i 's,/usr/bin/python3,python3,' {} +
  '';

  mesonBuildType = "debugoptimized";
  mesonFlags = [ "-Dwerror=false" ];
  ninjaFlags = [ "programs" ];
  doCheck = false;

  # Programs that can't be read are not stripped. Nix's store makes every file readable again in any case, so what
  # sys/process.h says of /proc begins a few instructions later there.
  postInstall = ''
    chmod 0755 $out/libexec/weir/*
    # They stage an image from programs below /usr; the first would need Python beside Weir.
    rm $out/share/weir/rootfs $out/share/weir/Dockerfile.staged
  '';

  # Loaded when a policy needs them.
  postFixup = ''
    patchelf --add-rpath ${
      lib.makeLibraryPath [
        libidn2
        libpsl
      ]
    } $out/bin/weir
  '';

  meta = {
    description = "Egress firewall for sandboxes";
    license = lib.licenses.asl20;
    mainProgram = "weir";
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };
}
