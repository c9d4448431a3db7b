//! `levada completions`.

use crate::program::levada;

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = levada(&["completions", shell]).ok();
        for word in
            ["levada", "produce", "max-body-bytes", "truncate", "redrive", "instance-id", "transaction", "keep-state"]
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    levada(&["completions", "cmd"]).failed(2);
}
