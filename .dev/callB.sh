W=/tmp/w; mkdir -p $W; cp .dev/*.xz $W; D=$PWD; cd $W; xz -d *.xz; cp $D/.dev/halfgnn.manifest.json .; chmod +x halfgnn cuda-tests record_hardware
export HALFGNN_PTX_DIR=$W
G="--graph amazon-like --graph road-like --graph kron21 --graph products-like --graph reddit-like"
(time timeout 150 ./halfgnn bench spmm --policy hp,discretized-float $G --features 32,64 --precision half --json $OUT/hp_spmm.jsonl) 2>&1 | grep -v "^$" | cut -c1-170 | tail -40
(time timeout 120 ./halfgnn bench sddmm --policy hp,half8-tensor $G --features 32,64 --precision half --json $OUT/hp_sddmm.jsonl) 2>&1 | grep -v "^$" | cut -c1-170 | tail -40
for o in "" "--hidden-norm layer" "--hidden-norm batch" "--hidden-norm pair" "--hidden-norm graph" "--jumping cat" "--jumping max" "--activation elu"; do
 timeout 60 ./halfgnn train --dataset reddit-like:1 --model gcn --hidden 128 --epochs 30 --device cuda --json t.jsonl $o > t.txt 2>&1; rm -f x; python3 - "$o" <<'P'
import json,sys
try:
    s=[json.loads(l) for l in open('t.jsonl')][-1]
    print(repr(sys.argv[1]), {k:v for k,v in s.items() if 'ms' in k or 'peak' in k or 'test' in k})
except Exception as e: print(sys.argv[1], e, open('t.txt').read()[-200:])
P
rm -f t.jsonl; done
