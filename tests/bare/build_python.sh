#!/bin/sh
# Builds Python in a copy of the bare root, where apt-get works, into /result/python.tar.gz. The archive has
# the form that uv unpacks: a folder `python` that runs wherever it is put.
set -eu
version=$1 mirror=$2 suite=$3
export DEBIAN_FRONTEND=noninteractive
echo "deb-src $mirror $suite main" >/etc/apt/sources.list.d/source.list
apt-get update -q
apt-get install -q -y --no-install-recommends gcc libc6-dev make xz-utils \
  libbz2-dev libffi-dev liblzma-dev libsqlite3-dev libssl-dev zlib1g-dev
mkdir /build /made
cd /build
apt-get source -q --download-only "python$version"
tar --strip-components=1 -xf python*.orig.tar.*
./configure -q --prefix=/python --without-ensurepip --disable-test-modules
make -s -j2
make -s install DESTDIR=/made
ln -sf "python$version" /made/python/bin/python
rm -rf /made/python/share "/made/python/lib/python$version/config-"*/libpython*.a /made/python/lib/libpython*.a
tar -C /made -czf /result/python.tar.gz python
