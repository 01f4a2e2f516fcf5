#!/bin/bash
# Prepares a rented machine and runs one job of GPU Bloom on it. `cloud_init.py` writes this file to the
# machine together with `settings` (what differs from job to job), `environment` and `job.sh`.
#
#   bootstrap.sh boot   the whole start: GPU, Python, packages, then the job
#   bootstrap.sh job    the job, and after it the end of the machine
#   bootstrap.sh end    end the machine
#
# Everything that happens is a line of the file `report`: TIME STAGE MARK TEXT, where MARK is + (the stage
# begins), . (output), - (it is done) or ! (it failed: a code, then a sentence). `send` uploads that file to
# the address in `report-address`; that address and all others are in files, never in a process list.
#
# Where `start_file` is set, the folder `store` on this machine is the store of the job: the server signs in
# over SSH, puts files there and takes files from there.

umask 077
base="${BLOOM_HOME:-/opt/bloom}"
cd "$base" || exit 1
export BLOOM_HOME="$base" BLOOM_REPORT="$base/report" HOME="${HOME:-/root}" DEBIAN_FRONTEND=noninteractive
. ./settings
# It holds the addresses; no process of the job inherits it.
unset BLOOM_SCRIPT
torch_indexes="${BLOOM_TORCH_INDEX:-https://download.pytorch.org/whl}"
apt_wait_seconds="${BLOOM_APT_WAIT:-300}"
# On the disk that is checked, so that uv links files instead of copying them.
export UV_CACHE_DIR="$base/cache" UV_PYTHON_INSTALL_DIR="$base/python" UV_HTTP_TIMEOUT=120 PIP_NO_CACHE_DIR=1
# Ending a machine at once could lose what it has just said.
[ "$ends" = power_off ] || [ -n "$start_file" ] || idle=0
ssh_folder="${BLOOM_SSH_FOLDER:-/etc/ssh}"
# How long results wait on this disk for a server that is off.
fetch_wait_seconds=43200

line() { # stage, mark, text
  printf '%(%s)T %s %s %s\n' -1 "$1" "$2" "$3" >>report
}

stage() { # name, text
  current=$1
  line "$1" + "$2"
}

stamp() { # each line of output, as one of the report
  while IFS= read -r text || [ -n "$text" ]; do
    line "$current" . "${text:0:500}"
    printf '%s\n' "$text"
  done
}

run() { # a command whose output belongs to the report; returns its status
  "$@" </dev/null 2>&1 | stamp
  return "${PIPESTATUS[0]}"
}

send() {
  [ -s report-address ] || return 0
  tail -c 60000 report >report.part
  case $(cat report-address) in
    volume:*)
      local target
      target="store/$(sed 's/^volume://' report-address)"
      mkdir -p "${target%/*}" && cp report.part "${target%/*}/.report.part" && mv "${target%/*}/.report.part" "$target"
      return
      ;;
  esac
  # Azure does not accept a write without this header; the others ignore it.
  printf 'url = "%s"\nheader = "x-ms-blob-type: BlockBlob"\nupload-file = "report.part"\n' \
    "$(cat report-address)" | curl -sf -m 20 -o /dev/null -K - 2>/dev/null && return
  python3 - 2>/dev/null <<'PYTHON'
import urllib.request
request = urllib.request.Request(
    open("report-address").read().strip(), data=open("report.part", "rb").read(), method="PUT",
    headers={
        "x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", "User-Agent": "gpubloom",
    },
)
urllib.request.urlopen(request, timeout=20)
PYTHON
}

send_while_it_starts() { # until the agent, which sends the report from then on
  while [ ! -e handed-over ]; do
    if [ report -nt report.part ]; then send; fi
    sleep 2
  done >/dev/null 2>&1 </dev/null &
}

fail() { # code, sentence
  # On a full disk there would be no room for the reason.
  rm -rf reserve cache
  echo "[bloom] $2"
  line "$current" '!' "$1 $2"
  touch handed-over
  for pause in 1 2 4 8 0; do
    send && break
    sleep "$pause"
  done
  if [ "$ends" = power_off ]; then
    in_background bloom-end "$idle" bash "$base/bootstrap.sh" end
    exit 1
  fi
  # A container that exits is started again.
  sleep "$idle"
  end
}

in_background() { # name, seconds to wait, program…
  local name=$1 wait=$2
  shift 2
  if [ -d /run/systemd/system ] && command -v systemd-run >/dev/null; then
    if [ "$wait" = 0 ]; then
      systemd-run --unit="$name" --collect --setenv=BLOOM_HOME="$base" --setenv=HOME="$HOME" "$@" && return
    else
      systemd-run --unit="$name" --on-active="$wait" --setenv=BLOOM_HOME="$base" "$@" && return
    fi
  fi
  nohup sh -c 'sleep "$1"; shift; exec "$@"' sh "$wait" "$@" >>"$base/$name.log" 2>&1 </dev/null &
}

free_gb() { df -Pk "$base" | awk 'NR == 2 { print int($4 / 1048576) }'; }

fail_if_disk_is_full() { # gigabytes that are needed
  local free
  free=$(free_gb)
  [ "${free:-0}" -ge "$1" ] && return
  fail disk_full "The disk of the machine has ${free:-0} GB free, and the start needs $1 GB. Choose an offer with a larger disk, or start the job with fewer packages."
}

look_at_gpu() { # sets driver, capability and torch_index
  local seen why columns=name,driver_version,compute_cap,memory.total
  command -v nvidia-smi >/dev/null ||
    fail no_driver "The machine has no NVIDIA driver: the program nvidia-smi is missing. Start the job again, or choose another offer."
  if ! seen=$(timeout 40 nvidia-smi --query-gpu=$columns --format=csv,noheader 2>&1); then
    # Drivers before 510 do not tell the compute capability.
    columns=name,driver_version,memory.total
    if ! seen=$(timeout 15 nvidia-smi --query-gpu=$columns --format=csv,noheader 2>&1); then
      echo "$seen" | stamp
      why=$(echo "$seen" | head -n 1)
      [ -n "$why" ] || why="nvidia-smi does not answer"
      fail broken_driver "The NVIDIA driver of the machine does not work: ${why%.}. Start the job again: another machine may be fine."
    fi
  fi
  local first found
  first=$(echo "$seen" | head -n 1)
  found=$(echo "$seen" | grep -c .)
  driver=$(echo "$first" | awk -F', *' '{ print $2 }')
  capability=$(echo "$first" | awk -F', *' 'NF == 4 { print $3 }')
  [ "$found" -ge "$gpus" ] ||
    fail too_few_gpus "The machine shows $found of its $gpus GPUs. Start the job again: another machine may be fine."
  torch_index=$(index_for "${driver%%.*}" "$capability")
  line machine . "$found x $first, $(uname -m), $(free_gb) GB disk free"
  [ -n "$torch_index" ] ||
    fail old_driver "The driver $driver of the machine is too old for current versions of PyTorch, which need 525 or newer. Choose another offer."
}

index_for() { # the newest build of PyTorch that a driver of this major version and such a GPU can run
  case $1 in '' | *[!0-9]*) return ;; esac
  # Builds for CUDA 12.8 and later have no code for GPUs before Turing (7.5).
  if [ -n "$2" ] && [ "${2/./}" -lt 75 ] && [ "$1" -ge 525 ]; then echo cu126
  elif [ "$1" -ge 580 ]; then echo cu130
  elif [ "$1" -ge 570 ]; then echo cu128
  elif [ "$1" -ge 525 ]; then echo cu126
  fi
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

apt_install() { # packages; waits while another program, such as the machine's own updates, holds apt's lock
  local deadline=$((SECONDS + apt_wait_seconds)) step said
  for step in "update -q" "install -q -y $*"; do
    while :; do
      # shellcheck disable=SC2086
      if said=$(apt-get $step </dev/null 2>&1); then break; fi
      if ! echo "$said" | grep -qiE 'could not get lock|unable to lock|unable to acquire|is held by'; then
        echo "$said" | tail -n 5 | stamp
        return 1
      fi
      if [ $SECONDS -ge $deadline ]; then
        fail apt_locked "Another program on the machine held the lock of its package manager for $apt_wait_seconds seconds. Start the job again."
      fi
      line "$current" . "waiting for the lock of apt-get, which another program holds"
      sleep 3
    done
  done
}

open_store() { # lets the server of this job sign in, with the keys that it made for this machine
  [ -n "$start_file" ] || return 0
  local sshd pid_file
  PATH="$PATH:/usr/sbin" command -v sshd >/dev/null || {
    line "$current" . "installing an SSH server"
    apt_install --no-install-recommends openssh-server
  }
  sshd=$(PATH="$PATH:/usr/sbin" command -v sshd) ||
    fail not_started "The machine has no SSH server, and none could be installed. Choose another offer, or set up a storage bucket."
  mkdir -p "$ssh_folder" "$HOME/.ssh" /run/sshd
  cp host-key "$ssh_folder/ssh_host_ed25519_key"
  ssh-keygen -y -f "$ssh_folder/ssh_host_ed25519_key" >"$ssh_folder/ssh_host_ed25519_key.pub"
  chmod 700 "$HOME/.ssh"
  grep -qsF "$base/machine_store.sh" "$HOME/.ssh/authorized_keys" ||
    printf 'restrict,command="/bin/sh %s/machine_store.sh" %s bloom\n' "$base" "$(cat authorized-key)" >>"$HOME/.ssh/authorized_keys"
  if "$sshd" -T 2>/dev/null | grep -qi '^permitrootlogin no'; then
    echo 'PermitRootLogin forced-commands-only' >"$ssh_folder/sshd_config.d/00-bloom.conf"
  fi
  systemctl reload-or-restart ssh 2>/dev/null || systemctl reload-or-restart sshd 2>/dev/null || {
    pid_file=$("$sshd" -T 2>/dev/null | awk '$1 == "pidfile" { print $2 }')
    if [ -s "$pid_file" ] && kill -HUP "$(cat "$pid_file")" 2>/dev/null; then return 0; fi
    run "$sshd" || fail not_started "The SSH server of the machine does not start. Choose another offer, or set up a storage bucket."
  }
}

wait_for_files() { # that the server puts into the store
  [ -n "$start_file" ] || return 0
  local deadline=$((SECONDS + fetch_wait_seconds)) told=$SECONDS
  stage data "waiting for the files of the job from this server"
  send
  while [ ! -s "store/$start_file" ]; do
    fail_if_disk_is_full 1
    [ $SECONDS -lt $deadline ] || fail not_started "The server did not send the files of the job. Start the job again while the server is running."
    if [ $((SECONDS - told)) -ge 30 ]; then
      told=$SECONDS
      line data . "$(du -sm store | cut -f 1) MB have arrived"
      send
    fi
    sleep 1
  done
}

wait_until_fetched() { # what the job made is on this disk only
  [ -n "$start_file" ] || return 0
  local deadline=$((SECONDS + fetch_wait_seconds))
  while [ $SECONDS -lt $deadline ] && [ -n "$(find store -path '*/in/*' -type f | head -n 1)" ]; do sleep 5; done
}

bring_uv() {
  export PATH="$base/tools/bin:$PATH"
  command -v uv >/dev/null && return
  if python3 -c 'import pip' >/dev/null 2>&1; then
    run python3 -m pip install --quiet --no-input --target "$base/tools" uv && command -v uv >/dev/null && return
  fi
  # Debian and Ubuntu leave pip out of Python. A wheel is a zip file, which any Python can unpack.
  cat >fetch_uv.py <<'PYTHON'
import hashlib, html, os, platform, re, sys, urllib.request, zipfile
from urllib.parse import urldefrag, urljoin

page = (os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple").rstrip("/") + "/uv/"
try:
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = re.findall(r"<a\s[^>]*>", answer.read().decode())
    name = re.compile(r'href="([^"]*/uv-([0-9.]+)-py3-none-manylinux[^"/]*_%s\.whl[^"]*)"' % platform.machine())
    found = [match for match in map(name.search, links) if match and "data-yanked" not in match.string]
    if not found:
        sys.exit("the package index has no uv for %s" % platform.machine())
    newest = max(found, key=lambda match: [int(part) for part in match.group(2).split(".")])
    address, digest = urldefrag(urljoin(page, html.unescape(newest.group(1))))
    with urllib.request.urlopen(address, timeout=60) as answer, open("uv.whl", "wb") as wheel:
        for content in iter(lambda: answer.read(1 << 20), b""):
            wheel.write(content)
    with open("uv.whl", "rb") as wheel:
        if digest.startswith("sha256=") and hashlib.sha256(wheel.read()).hexdigest() != digest[7:]:
            sys.exit("the package index sent a damaged uv")
    target = os.path.join("tools", "bin", "uv")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with zipfile.ZipFile("uv.whl") as wheel, open(target, "wb") as program:
        program.write(wheel.read(next(each for each in wheel.namelist() if each.endswith("/scripts/uv"))))
    os.chmod(target, 0o755)
    os.remove("uv.whl")
except (OSError, ValueError, StopIteration, zipfile.BadZipFile) as problem:
    sys.exit("uv could not be fetched from the package index: %s" % problem)
PYTHON
  run python3 fetch_uv.py && command -v uv >/dev/null && return
  command -v curl >/dev/null && curl -LsSf -m 120 https://astral.sh/uv/install.sh -o uv-install.sh &&
    run env UV_INSTALL_DIR="$base/tools/bin" UV_NO_MODIFY_PATH=1 sh uv-install.sh
  command -v uv >/dev/null
}

make_venv() { # with Python 3.11 or newer; sees the libraries of the image when that has such a Python
  if is_new_enough python3; then
    [ ${#packages[@]} -gt 0 ] || return 0
    run python3 -m venv --system-site-packages venv && return
    rm -rf venv
    # Debian and Ubuntu leave ensurepip out of Python.
    bring_uv && run uv venv --quiet --system-site-packages --python "$(command -v python3)" venv && return
    apt_install python3-venv && run python3 -m venv --system-site-packages venv
    return
  fi
  if ! command -v python3 >/dev/null; then
    line "$current" . "this image has no Python: installing one with apt-get"
    apt_install --no-install-recommends ca-certificates python3 && is_new_enough python3 && make_venv && return
  fi
  line "$current" . "this image has $(python3 --version 2>&1 || echo no Python): bringing a newer one with uv"
  if bring_uv && run uv venv --quiet --python '>=3.11,<3.13' venv; then return; fi
  rm -rf venv
  apt_install python3.11 python3.11-venv && run python3.11 -m venv venv
}

install() { # an index, or nothing for PyPI or its mirror; then packages
  local index=$1
  shift
  if [ -x venv/bin/pip ]; then
    run venv/bin/python -m pip install --quiet --no-input ${index:+--index-url "$index"} -- "$@"
  else
    run uv pip install --quiet --python venv/bin/python ${index:+--default-index "$index"} -- "$@"
  fi
}

brings_torch() { # whether a requirement is a part of PyTorch (1) or needs it (2)
  local name="${2%%[^A-Za-z0-9._-]*}"
  case $1:${name,,} in
    1:torch | 1:torchvision | 1:torchaudio) return 0 ;;
    2:accelerate | 2:bitsandbytes | 2:deepspeed | 2:lightning | 2:peft | 2:pytorch-lightning | 2:sentence-transformers | \
      2:timm | 2:torchmetrics | 2:torchtune | 2:trl | 2:unsloth | 2:xformers) return 0 ;;
  esac
  return 1
}

install_packages() {
  local torch=() others=() needs= each
  for each in "${packages[@]}"; do
    if brings_torch 1 "$each"; then torch+=("$each"); else others+=("$each"); fi
    if brings_torch 2 "$each"; then needs=yes; fi
  done
  if [ ${#torch[@]} = 0 ] && [ -n "$needs" ] && ! venv/bin/python -c 'import torch' >/dev/null 2>&1; then
    torch=(torch)
  fi
  if [ ${#torch[@]} -gt 0 ]; then
    line "$current" . "PyTorch for ${torch_index} (driver ${driver})"
    install "$torch_indexes/$torch_index" "${torch[@]}" ||
      line "$current" . "no suitable build in the index $torch_index: taking the one of PyPI"
  fi
  [ ${#others[@]} = 0 ] && [ ${#torch[@]} -gt 0 ] && others=("${torch[@]}")
  [ ${#others[@]} = 0 ] || install "" "${others[@]}" "${torch[@]}" || {
    fail_if_disk_is_full 1
    # One wrong name must not keep the others away. The job fails without a package that it needs.
    for each in "${others[@]}"; do
      install "" "$each" || line "$current" . "the package $each could not be installed"
    done
  }
  fail_if_disk_is_full 1
}

check_cuda() { # within a minute, or the machine is of no use
  local python=python3 said
  [ -d venv ] && python=venv/bin/python
  cat >check_cuda.py <<'PYTHON'
import sys

try:
    import torch
except ImportError:
    sys.exit(0)
if not torch.version.cuda:
    sys.exit("this PyTorch (%s) is built without CUDA" % torch.__version__)
try:
    one = torch.ones(8, device="cuda").sum().item()
except Exception as problem:
    sys.exit("%s: %s" % (type(problem).__name__, str(problem).splitlines()[0]))
capability = torch.cuda.get_device_capability()
print("PyTorch %s computes on %s (%d.%d)" % (torch.__version__, torch.cuda.get_device_name(), *capability))
PYTHON
  if ! said=$(timeout 60 "$python" "${BLOOM_CUDA_CHECK:-check_cuda.py}" 2>&1); then
    fail cuda_unusable "PyTorch cannot use the GPU of this machine (driver $driver, build $torch_index): $(echo "$said" | tail -n 1). Start the job again: another machine may be fine."
  fi
  [ -z "$said" ] || line "$current" . "$(echo "$said" | tail -n 1)"
}

boot() {
  if [ -e started ]; then
    # A service that restarts a container would run the job a second time.
    [ "$ends" = power_off ] && exit 0
    current=start
    open_store
    fail restarted "The service restarted the container, and what the job had computed there is gone. The job continues from its last checkpoint on a new machine."
  fi
  touch started report
  head -c 1048576 /dev/zero >reserve
  if [ "$ends" = power_off ]; then exec >>boot.log 2>&1; fi
  stage machine "the machine is up"
  if [ -n "$longest" ]; then
    # If the machine is never terminated, end it, so that at least the job stops.
    in_background bloom-off "$longest" bash "$base/bootstrap.sh" end
  fi
  send_while_it_starts
  open_store
  fail_if_disk_is_full "$disk_gb"
  look_at_gpu
  line machine - "driver $driver, $torch_index"
  stage packages "${#packages[@]} to install"
  if ! make_venv && ! is_new_enough python3; then
    fail_if_disk_is_full 1
    fail no_python "Python 3.11 or newer could not be installed on the machine. Choose another offer, or an image with Python 3.11."
  fi
  if [ ${#packages[@]} -gt 0 ]; then
    if [ -d venv ]; then install_packages; else
      line packages . "no virtual environment could be made: the job starts without its packages"
    fi
  fi
  check_cuda
  line packages - "done"
  if [ "$ends" = power_off ]; then
    in_background bloom-job 0 bash "$base/bootstrap.sh" job
  else
    exec bash "$base/bootstrap.sh" job
  fi
}

job() {
  current=data
  wait_for_files
  touch handed-over
  env -u RUNPOD_API_KEY bash job.sh 2>&1 | tee -a job.log
  if ! grep -qE '^[0-9]+ start [-!] ' report; then
    last=$(grep -v '^ *$' job.log | tail -n 1)
    case $last in
      *"HTTP Error 403"* | *"HTTP Error 401"* | *"HTTP Error 400"* | *"HTTPError 403"* | *"HTTPError 401"*)
        fail address_expired "The address from which the machine loads the job is no longer valid. Resume the job: it gets a new one." ;;
      *"No space left"*) fail disk_full "The disk of the machine is full. Choose an offer with a larger disk." ;;
    esac
    grep -qE '^[0-9]+ [a-z]+ ! ' report ||
      fail not_started "The agent could not start the job: ${last:0:300}"
  fi
  wait_until_fetched
  sleep "$idle"
  end
}

end() {
  # Without our folder, the machine is no longer ours.
  [ -e started ] || exit 0
  if [ "$ends" = power_off ]; then exec shutdown -P now; fi
  # For an image without curl. RunPod's API refuses requests that name Python's own library.
  cat >delete_pod.py <<'PYTHON'
import os
import urllib.request
request = urllib.request.Request(
    "%s/v2/pods/%s" % (os.environ["API"], os.environ["RUNPOD_POD_ID"]), method="DELETE",
    headers={"Authorization": "Bearer " + os.environ["RUNPOD_API_KEY"], "User-Agent": "gpubloom"},
)
urllib.request.urlopen(request, timeout=30)
PYTHON
  [ -d venv ] && export PATH="$base/venv/bin:$PATH"
  # The container must not end by itself: the service would start it again, and bill it.
  while :; do
    printf 'url = "%s/v2/pods/%s"\nrequest = "DELETE"\nheader = "Authorization: Bearer %s"\n' \
      "$api" "$RUNPOD_POD_ID" "$RUNPOD_API_KEY" | curl -sf -m 30 -o /dev/null -K - ||
      API="$api" python3 delete_pod.py || runpodctl remove pod "$RUNPOD_POD_ID"
    sleep 30
  done
}

"${1:-boot}"
