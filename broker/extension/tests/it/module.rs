//! What the seam itself decides: digests in text, sets of fields in bits, what a config's error is in a call.

use levada_extension::{Fields, ModuleConfigError, ModuleDigest, ModuleFault, ModuleWorld, StopCause};

#[test]
fn a_digest_is_its_text() {
    let digest = ModuleDigest::of(b"abc");
    let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest.to_string(), text, "FIPS 180-4's own example");
    assert_eq!(text.parse(), Ok(digest));
    for wrong in ["", "sha256:", &text[7..], &text[..70], &format!("{text}0"), &text.replace('b', "g")] {
        assert!(wrong.parse::<ModuleDigest>().is_err(), "{wrong}");
    }
}

#[test]
fn fields_are_their_bits() {
    let some = Fields::KEY | Fields::HEADERS | Fields::PLACE;
    assert_eq!(Fields::from_bits(some.bits()), some);
    assert_eq!(Fields::from_bits(0xff).bits(), 0b1_1111);
}

#[test]
fn a_config_that_fails_in_a_call_fails_that_call() {
    let refused = ModuleConfigError::Refused { reason: "no".to_owned() };
    assert_eq!(
        ModuleFault::from(refused),
        ModuleFault::Failed { reason: "the module refuses the config: no".to_owned() }
    );
    let (cause, reason) = (StopCause::Trap, "it trapped".to_owned());
    let stopped = ModuleConfigError::Stopped { cause, reason: reason.clone() };
    assert_eq!(ModuleFault::from(stopped), ModuleFault::Stopped { cause, reason });
    assert!(matches!(ModuleConfigError::World { world: ModuleWorld::Transform }.into(), ModuleFault::Failed { .. }));
}
