#!/usr/bin/env bash
# Measure environments on a GPU: stages of at most four minutes, each writes its own table into $OUT.
#
#   benchmarks/gpu.sh                                  # all stages, in the order of what a short loan of a GPU is worth
#   benchmarks/gpu.sh kernels train                    # some of them
#   DEVICE=cpu ROWS=16 TRAIN=5000 benchmarks/gpu.sh    # a try without a GPU
#   WHEELS=/path/to/wheels benchmarks/gpu.sh           # a machine without network: what `benchmarks/gpu.sh wheels` downloaded
#
# Warp's kernels need no CUDA toolkit: its wheel (149 MB) brings NVRTC. With network `pip install -c constraints.txt ".[device,
# scripts,report]"` brings all; torch must be a build with CUDA. The first stage compiles every kernel for this card, cached.
set -u
cd "$(dirname "$0")/.."
DEVICE=${DEVICE:-cuda} ROWS=${ROWS:-"1024 8192 32768"} TRAIN=${TRAIN:-20000000} OUT=${OUT:-runs/gpu} WHEELS=${WHEELS:-}
PYTHON=${PYTHON:-.venv/bin/python} LIMIT=${LIMIT:-240}
few=${ROWS%% *}
mkdir -p "$OUT"

wheels() { "$PYTHON" -m pip download -q -c constraints.txt -d "${WHEELS:-wheels}" ".[device,scripts,report]"; }

install() {
  if [ -n "$WHEELS" ]; then set -- --no-index --find-links "$WHEELS"; else set --; fi
  "$PYTHON" -m pip install -q "$@" -c constraints.txt -e ".[device,scripts,report]"
}

speed() { "$PYTHON" -m softgym_commands speed --device "$DEVICE" "$@"; }

compile() { speed --stage kernels --rows 64; }
kernels() { speed --stage kernels --rows $ROWS --out "$OUT/kernels.json"; }
episodes() { speed --stage episodes --rows $ROWS --out "$OUT/episodes.json"; }
agreement() { speed --stage agreement --rows "$few" --out "$OUT/agreement.json"; }

train() {
  "$PYTHON" -m softgym_commands train VineGrow-v0 --learner rsl --device "$DEVICE" --dtype float32 --steps "$TRAIN" \
    --num-envs "${ROWS##* }" --episodes 100 --out "$OUT/VineGrow-v0_$(date +%s)"
}

[ -z "$WHEELS" ] || [ "${1:-}" = wheels ] || install
export -f speed compile kernels episodes agreement train wheels
export DEVICE ROWS TRAIN OUT WHEELS PYTHON few
for stage in "${@:-compile kernels agreement episodes train}"; do
  for one in $stage; do
    echo "== $one, at most $LIMIT s"
    timeout "$LIMIT" bash -c "$one" 2>&1 | tee "$OUT/$one.md"
    [ "${PIPESTATUS[0]}" = 0 ] || echo "$one ended with ${PIPESTATUS[0]}; 124: it ran out of time, and what is printed stands"
  done
done
