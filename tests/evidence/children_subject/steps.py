"""Functions that do nothing but say that they run."""


def step_0(note):
    note("step_0")


def step_1(note):
    note("step_1")


def step_2(note):
    note("step_2")


def step_3(note):
    note("step_3")


def step_4(note):
    note("step_4")


def step_5(note):
    note("step_5")


def step_6(note):
    note("step_6")


def step_7(note):
    note("step_7")


def step_8(note):
    note("step_8")


def step_9(note):
    note("step_9")


def step_10(note):
    note("step_10")


def step_11(note):
    note("step_11")


def step_12(note):
    note("step_12")


def step_13(note):
    note("step_13")


def step_14(note):
    note("step_14")


def step_15(note):
    note("step_15")


def step_16(note):
    note("step_16")


def step_17(note):
    note("step_17")


def step_18(note):
    note("step_18")


def step_19(note):
    note("step_19")


def step_20(note):
    note("step_20")


def step_21(note):
    note("step_21")


def step_22(note):
    note("step_22")


def step_23(note):
    note("step_23")


def step_24(note):
    note("step_24")


def step_25(note):
    note("step_25")


def step_26(note):
    note("step_26")


def step_27(note):
    note("step_27")


def step_28(note):
    note("step_28")


def step_29(note):
    note("step_29")


def step_30(note):
    note("step_30")


def step_31(note):
    note("step_31")


def step_32(note):
    note("step_32")


def step_33(note):
    note("step_33")


def step_34(note):
    note("step_34")


def step_35(note):
    note("step_35")


def step_36(note):
    note("step_36")


def step_37(note):
    note("step_37")


def step_38(note):
    note("step_38")


def step_39(note):
    note("step_39")
