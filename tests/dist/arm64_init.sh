# SPDX-License-Identifier: Apache-2.0
# The first program of the emulated machine: a root file system in memory, a name server, a listener, and `weir run`.
if [ ! -e /moved ]; then
	/bin/busybox --install -s /bin
	export PATH=/bin
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs dev /dev
	# No root can be changed to another where the first one is the kernel's own.
	mount -t tmpfs tmpfs /new
	cp -a /bin /etc /init /lib /usr /new/
	cd /new && mkdir home home/me new proc root run sbin sys dev tmp var && chmod 1777 tmp && touch moved
	ln -s /bin/busybox sbin/modprobe
	for folder in proc sys dev; do mount --move /$folder /new/$folder; done
	exec switch_root /new /bin/busybox sh /init
fi
export PATH=/bin:/sbin:/usr/local/bin HOME=/home/me
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for module in nf_tables nfnetlink_log nft_ct nft_chain_nat nft_reject_inet nft_redir nft_log nft_fib_inet nft_limit veth overlay; do
	modprobe $module || echo "no module $module"
done
chown 1000:1000 /home/me
ip link set lo up
for address in 93.1.1.53 93.1.1.1 93.1.1.2; do ip addr add $address/32 dev lo; done
ip link add out type veth peer name other
ip link set out up
ip addr add 10.9.9.1/24 dev out
ip route add default via 10.9.9.2
name_server 93.1.1.53 93.1.1.1 &
nc -ll -p 7007 -e /bin/hello &
sleep 2
echo "outside: $(nc -w 20 93.1.1.1 7007 </dev/null) $(nc -w 20 93.1.1.2 7007 </dev/null)"
cd /home/me
cat >inside <<'EOF'
echo "machine: $(uname -m)"
echo "names: $(lookup allowed.test | cut -d ' ' -f 2) $(lookup denied.test | cut -d ' ' -f 2)"
echo "allowed: $(nc -w 20 93.1.1.1 7007 </dev/null)"
echo "denied: $(nc -w 20 93.1.1.2 7007 </dev/null)"
unshare -U true || echo "no further namespace"
EOF
su me -c "weir run --upstream 93.1.1.53 --allow allowed.test:7007 --allow 93.1.1.1:7007 -- sh inside"
echo "status: $?"
poweroff -f
