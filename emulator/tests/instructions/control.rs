//! Predicates, branches, calls, and what a thread knows of itself.

use crate::harness::{launch, module, per_thread, words};

#[test]
fn predicated_instructions() {
    let body = "mov.u32 %r1, 1;
        setp.lt.u32 p, tid, 10;
        @p add.u32 %r1, %r1, 100;
        @!p add.u32 %r1, %r1, tid;
        setp.eq.u32 q, tid, 3;
        @q mov.u32 %r1, 77;";
    for (t, found) in per_thread("", body, 64).into_iter().enumerate() {
        let t = t as u32;
        assert_eq!(
            found,
            if t == 3 {
                77
            } else if t < 10 {
                101
            } else {
                1 + t
            }
        );
    }
}

/// Collatz: a loop that each lane leaves when it likes, with a branch inside.
#[test]
fn loops_that_diverge() {
    let body = "add.u32 %r2, tid, 1;
        mov.u32 %r1, 0;
        LOOP:
        setp.eq.u32 p, %r2, 1;
        @p bra DONE;
        and.b32 %r3, %r2, 1;
        setp.eq.u32 q, %r3, 0;
        @q bra EVEN;
        mad.lo.u32 %r2, %r2, 3, 1;
        bra.uni NEXT;
        EVEN:
        shr.u32 %r2, %r2, 1;
        NEXT:
        add.u32 %r1, %r1, 1;
        bra LOOP;
        DONE:";
    for (t, found) in per_thread("", body, 128).into_iter().enumerate() {
        let (mut n, mut steps) = (t as u64 + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        assert_eq!(found, steps);
    }
}

#[test]
fn a_table_of_targets() {
    let body = "and.b32 %r2, tid, 3;
        TABLE: .branchtargets ZERO, ONE, TWO, THREE;
        brx.idx %r2, TABLE;
        ZERO: mov.u32 %r1, 10; bra DONE;
        ONE: mov.u32 %r1, 11; bra DONE;
        TWO: mov.u32 %r1, 12; bra DONE;
        THREE: mov.u32 %r1, 13;
        DONE:";
    for (t, found) in per_thread("", body, 64).into_iter().enumerate() {
        assert_eq!(found as usize, 10 + t % 4);
    }
}

/// As LLVM writes them: parameters and results through `.param` variables, one a struct.
const FUNCTIONS: &str = "
.func (.param .b32 func_retval0) square(.param .b32 square_param_0)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [square_param_0];
    mul.lo.s32 %r2, %r1, %r1;
    st.param.b32 [func_retval0], %r2;
    ret;
}
.func (.param .align 8 .b8 func_retval0[16]) twist(.param .align 8 .b8 twist_param_0[16], .param .b32 twist_param_1)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    .reg .pred %p<2>;
    ld.param.b64 %rd1, [twist_param_0];
    ld.param.b32 %r1, [twist_param_0+12];
    ld.param.b32 %r2, [twist_param_1];
    setp.gt.u32 %p1, %r2, 20;
    @%p1 bra $L__BB1_2;
    {
        .param .b32 param0;
        st.param.b32 [param0], %r2;
        .param .b32 retval0;
        call.uni (retval0), square, (param0);
        ld.param.b32 %r2, [retval0];
    }
$L__BB1_2:
    st.param.b64 [func_retval0+8], %rd1;
    add.s32 %r3, %r1, %r2;
    st.param.v2.b32 [func_retval0], {%r2, %r3};
    ret;
}
";

#[test]
fn calls() {
    let body = "{
        .param .b32 param0;
        st.param.b32 [param0], tid;
        .param .b32 retval0;
        call.uni (retval0), square, (param0);
        ld.param.b32 %r1, [retval0];
    }";
    for (t, found) in per_thread(FUNCTIONS, body, 64).into_iter().enumerate() {
        assert_eq!(found as usize, t * t);
    }
}

/// Only some lanes call the inner function, and only some the outer.
#[test]
fn calls_that_diverge() {
    let body = "mov.u32 %r1, 5;
        setp.lt.u32 p, tid, 8;
        @p bra DONE;
        {
            .param .align 8 .b8 param0[16];
            cvt.u64.u32 %d1, tid;
            add.u32 %r2, tid, 1000;
            st.param.b64 [param0], %d1;
            st.param.b32 [param0+12], %r2;
            .param .b32 param1;
            st.param.b32 [param1], tid;
            .param .align 8 .b8 retval0[16];
            call.uni (retval0), twist, (param0, param1);
            ld.param.v2.b32 {%r3, %r4}, [retval0];
            ld.param.b64 %d2, [retval0+8];
        }
        cvt.u32.u64 %r5, %d2;
        add.u32 %r1, %r3, %r4;
        add.u32 %r1, %r1, %r5;
        DONE:";
    for (t, found) in per_thread(FUNCTIONS, body, 64).into_iter().enumerate() {
        let t = t as u32;
        let inner = if t > 20 { t } else { t * t };
        assert_eq!(
            found,
            if t < 8 {
                5
            } else {
                inner + (1000 + t + inner) + t
            }
        );
    }
}

/// Leaves every thread's registers at `output[linear thread][0..n]`.
fn specials(registers: &[&str], grid: [u32; 3], block: [u32; 3]) -> Vec<Vec<u32>> {
    let n = registers.len() as u32;
    let mut body = "mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.y; mov.u32 %r4, %ctaid.y; mad.lo.u32 %r2, %r2, %r3, %r4;
        mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r2, %r2, %r3, %r4;
        mov.u32 %r3, %ntid.z; mov.u32 %r4, %tid.z; mad.lo.u32 %r2, %r2, %r3, %r4;
        mov.u32 %r3, %ntid.y; mov.u32 %r4, %tid.y; mad.lo.u32 %r2, %r2, %r3, %r4;
        mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;\n"
        .to_owned();
    body += &format!(
        "mul.wide.u32 %d1, %r2, {}; add.s64 %d1, output, %d1;\n",
        4 * n
    );
    for (i, r) in registers.iter().enumerate() {
        body += &format!("mov.u32 %r1, {r}; st.global.u32 [%d1+{}], %r1;\n", 4 * i);
    }
    let threads: u32 = grid.iter().chain(&block).product();
    let bytes = launch(
        &module("", &body),
        grid,
        block,
        0,
        &[],
        (threads * n * 4) as usize,
    );
    words(&bytes)
        .chunks(n as usize)
        .map(<[u32]>::to_vec)
        .collect()
}

#[test]
fn where_a_thread_is() {
    let registers = [
        "%tid.x",
        "%tid.y",
        "%tid.z",
        "%ntid.x",
        "%ntid.y",
        "%ntid.z",
        "%ctaid.x",
        "%ctaid.y",
        "%ctaid.z",
        "%nctaid.x",
        "%nctaid.y",
        "%nctaid.z",
        "%laneid",
    ];
    let found = specials(&registers, [3, 2, 2], [5, 4, 3]);
    assert_eq!(found.len(), 12 * 60);
    for (i, row) in found.into_iter().enumerate() {
        let i = i as u32;
        let (b, t) = (i / 60, i % 60);
        let place = [
            t % 5,
            t / 5 % 4,
            t / 20,
            5,
            4,
            3,
            b % 3,
            b / 3 % 2,
            b / 6,
            3,
            2,
            2,
            t % 32,
        ];
        assert_eq!(row, place, "thread {t} of block {b}");
    }
}

#[test]
fn masks_of_lanes() {
    let registers = [
        "%lanemask_eq",
        "%lanemask_lt",
        "%lanemask_le",
        "%lanemask_gt",
        "%lanemask_ge",
    ];
    for (lane, row) in specials(&registers, [1, 1, 1], [32, 1, 1])
        .into_iter()
        .enumerate()
    {
        let of = |f: fn(usize, usize) -> bool| {
            (0..32)
                .filter(|l| f(*l, lane))
                .map(|l| 1u32 << l)
                .sum::<u32>()
        };
        let expected = [
            of(|l, me| l == me),
            of(|l, me| l < me),
            of(|l, me| l <= me),
            of(|l, me| l > me),
            of(|l, me| l >= me),
        ];
        assert_eq!(row, expected, "lane {lane}");
    }
}

#[test]
fn packing() {
    let body = "mov.b32 {%h1, %h2}, tid;
        add.s16 %h2, %h1, 5;
        mov.b32 %r2, {%h2, %h1};
        mov.b64 %d1, {%r2, tid};
        mov.b64 {%r3, _}, %d1;
        mov.b32 %r1, %r3;";
    for (t, found) in per_thread("", body, 32).into_iter().enumerate() {
        assert_eq!(found as usize, t << 16 | (t + 5));
    }
}
