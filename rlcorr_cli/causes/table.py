"""The words of all causes in one table: of files that were written wrongly, and of two policies that differ.

`rlcorr help diagnose` lists it; it loads without numpy.  A cause of a file is sought in the file's
first rows, by a test in `anomalies`.  A cause of a gap is sought in a sample of whole rows (all of them, where the dump
is small), by a rule in RULES of its subject's module (`rows`, `columns`, `positions`, `curves`, `weights`).  Its row
says what else `judge` and `search` do with it; the rules of a family are tried in the order of the rows.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal

from rlcorr_cli.frozen import frozen

Kind = Literal["file", "policy"]
Effect = Literal["fault", "warning", "none"]
"""fault: rows or columns do not belong together, or are not log-probs of the sampled tokens: `check` fails and `filter`
stops.  warning: training lives with it, and it should be mended: `check` warns, `filter` writes and says so.  none:
nothing is wrong with the data.  A cause that may be harmless or harmful has the harmful effect."""
KINDS: dict[Kind, str] = {
    "file": "of whole files, suspected from their first rows",
    "policy": "of a gap between the policies, found from sums over a sample of whole rows",
}


Scope = Literal["setting", "rows", "tokens", "trend", "broad", ""]
"""setting: of a sampler, which no fault of single tokens looks like.  rows: single rows that are wrong as a whole, and
leave all others as they are; tokens: single tokens, whose rows are often wrong elsewhere, too; trend: along the row.
broad: what a mixture of two kinds of rows looks like, a trend along another column among them; and, of a spread, what
rounding to a coarse grid does: it moves sure tokens by much in log-odds, and most of a row's to the same side."""
Family = Literal["recording", "apart", "curve", "along", "spread", "rest"]
"""Of what its rule reads: the first that holds of a family is told, of `apart` each.

recording: which tokens were recorded; nothing else is sought beside one.  apart: what stands apart by itself.  curve: a
function of the log-prob, by which every token moves.  along: the place in the row.  spread: of the log-odds; of these
only other weights and staleness are sought beside a curve.  rest: what all others leave."""
LEAST = 0.01
"""A cause of a smaller share of the gap is not told."""
MIN_SIZE, MIN_Z = 1.5, 4.0
"""How many times as far off as all others, and by how many standard errors, rows that a column names must be (`where`),
plus log10 of the levels that are tried in all columns, so that a false place is unlikely."""


@frozen(kw_only=True)
class Cause:
    """Why a dump's numbers are what they are.

    meaning: what is the matter.  looks: what it leaves in the data.  certainty: how sure one can be.  alike: what else
    looks like it.  advice: what to do.  source: which framework is known for it, or the fact that this rests on.
    effect: what it does to a run; see Effect.  moves_mean: to which side of 1 it may move the mean ratio, which would
    be 1 without it: below where rollout's column is cut, above where tokens were drawn from training's.

    Of a gap between policies also: reading: the noun for it where a headline names it as an alternative (", or a
    soft-cap").  proven: whether it follows from a broken bound or identity (log-probs of exactly 0 only where the other
    policy's lie above a bound, two means that no pair of policies has, two log-probs that cannot be of one token);
    'unless_stale' where staleness moves the tokens that show the bound.  rank: causes of a lower rank are listed first,
    and get their share of the gap first; of equal ranks the one with the larger share.  Rank 0 names a setting or a
    place, and larger ranks say less.  at_equal_surprise: whether its share is of what a curve leaves, so that it comes
    after that.  least_share: with a smaller share of the gap it is minor: listed last, and never the verdict.  sought:
    see Family.  not_beside: rules, by their first row, or "place", a place of the gap, beside which it is not sought.
    needs: what it cannot be seen without.  scope: see Scope.  sits_on: the tokens that its share is of, as
    features.SITS_ON has them.  claims_all: whether its rule claims the whole gap of its tokens, so that it may have
    less where something else is known to sit on them.  follows_faults: whether the tokens around faulty ones look like
    it, too.
    """

    name: str
    kind: Kind = "policy"
    meaning: str
    looks: str
    certainty: str
    alike: str
    advice: str
    source: str = ""
    effect: Effect = "warning"
    moves_mean: Literal["", "below", "above", "either"] = ""
    reading: str = ""
    proven: Literal["", "always", "unless_stale"] = ""
    rank: int = 0
    at_equal_surprise: bool = False
    least_share: float = 0.15
    sought: Family = "apart"
    not_beside: tuple[str, ...] = ()
    needs: Literal["", "token ids", "advantages or rewards"] = ""
    scope: Scope = ""
    sits_on: Literal["", "all", "paired", "odd", "first", "last", "seams", "inner"] = ""
    claims_all: bool = False
    follows_faults: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether numbers and corrections mean nothing until it is mended."""
        return self.effect == "fault"

    @property
    def voids(self) -> bool:
        """Whether all numbers of the file are meaningless."""
        return self.kind == "file" and self.is_fault


_fault = partial(Cause, effect="fault")
_fault_of_a_file = partial(_fault, kind="file")
ANOMALIES: tuple[Cause, ...] = (
    _fault_of_a_file(
        name="bypass_copy",
        meaning="The training column is a copy of the rollout column, so every correction does nothing.",
        looks="Both columns agree to the last digit on every token of the first rows, 16 of them other than 0 at "
        "least.",
        certainty="The columns are equal for certain. Whether that is wrong only you can know: bit-equal engines "
        "give equal columns.",
        alike="Engines and trainers that share their kernels and reach the same bits.",
        advice="Write the training policy's own log-probs before the trainer's bypass overwrites them; bit-equal "
        "engines may ignore this.",
        source="verl's bypass mode sets old_log_probs = rollout_log_probs: equal columns mean no training policy, not "
        "a perfect match",
    ),
    _fault_of_a_file(
        name="shifted_columns",
        meaning="One column lies a token earlier or later than the other.",
        looks="The two columns go together one token off (correlation 0.5 at least), and not in place.",
        certainty="The correlation off place must beat that in place by 0.3 and by five standard errors.",
        alike="mispaired_rows, where single rows do not go together at any shift.",
        advice="Shift one column by a token and write the dump again: both must hold the log-prob of token t at place "
        "t.",
        source="AReaL's prox_logp stands at the token before (labels rolled by -1); OpenRLHF, ROLL and tinker write n "
        "- 1 values; a real pair correlates 1.00, and 0.06 when shifted by one",
    ),
    _fault_of_a_file(
        name="unmasked_padding",
        meaning="Rows were padded to one length, and the padding counts as tokens.",
        looks="All rows are of one length, and a tenth of them or more end or start with a long run of one value in "
        "both columns.",
        certainty="Runs as common inside rows are not padding: a policy that repeats itself is sure of it in both "
        "columns.",
        alike="Rows that were cut at one length and end in a long repetition.",
        advice="Mask the padding (response_mask 0), or cut each row to its own length.",
        source="verl, NeMo-RL, TRL, SkyRL and OpenRLHF hold padded batches in memory; SkyRL pads on the left since "
        "2026-03",
    ),
    _fault_of_a_file(
        name="unmasked_prompt",
        meaning="Rows begin with the prompt, which the rollout engine never scored, and it counts as tokens.",
        looks="Half of the rows or more start with a run of exact zeros: in the rollout column, on which the other "
        "column is surprised, or in both columns.",
        certainty="A single 0 is no sign: probability 1 rounds to it. A run counts where the other column contradicts "
        "it, or where runs of zeros in both columns are rare inside rows.",
        alike="unscored_zeros, where runs stand inside rows.",
        advice="Mask the prompt (response_mask 0), or name the column of the mask (map response_mask=COLUMN).",
        source="NeMo-RL, AReaL, prime-rl and tinker write whole sequences with 0.0 on the prompt in the rollout column "
        "only",
    ),
    _fault_of_a_file(
        name="floor_value",
        meaning="The smallest log-probs of a column are all one value: a mark for a missing one, or a limit.",
        looks="Several tokens share the smallest value bit for bit (-100, -1000, log 1e-10), after different contexts.",
        certainty="Certain: 5 tokens, or 3 that lie 20 nats below the next value, and no ties like theirs above them.",
        alike="A column on a coarse grid, or of a small vocabulary, where ties are natural: it needs a wider gap.",
        advice="Mask those tokens (response_mask 0), or write the log-probs before they are limited.",
        source="mlx-omni-server writes -inf as -100; frameworks take the log of max(p, 1e-10)",
    ),
    _fault_of_a_file(
        name="unscored_zeros",
        meaning="One column holds 0.0 on tokens it never scored (accepted drafts, tool output), and they count.",
        looks="Exact zeros in one column, in runs or scattered, on tokens of which the other is surprised.",
        certainty="Only zeros that the other column contradicts count; scattered ones if sure tokens are not all 0, "
        "runs if not a tenth of all values is 0 elsewhere, as a cut leaves them.",
        alike="top_p, which gives exact zeros only where the other policy gives a token more than p.",
        advice="Mask those tokens (response_mask 0), or score them; 0.0 means probability 1.",
        source="NeMo-RL, miles, OpenRLHF, TRL: 0.0 stands for 'the engine did not score this token'",
    ),
    _fault_of_a_file(
        name="repeated_values",
        meaning="A column repeats values: it holds no log-prob of each token.",
        looks="One value in a row, a few again and again, the values of another row, or one value for each token id.",
        certainty="Certain: the values are equal bit for bit where those of the other column are not.",
        alike="grid: values on a coarse grid tie now and then. Copies of rows repeat both columns.",
        advice="Write the log-prob of each sampled token, not one of the row, of the vocabulary or of another row.",
        source="a log-prob depends on all tokens before it",
    ),
    _fault_of_a_file(
        name="derived_values",
        meaning="A column is computed from other values: it holds no log-prob of each token.",
        looks="A running total or mean, a smoothed column, the other column by a line, ranks.",
        certainty="Certain: an identity on all tokens, or on the rows that are counted. A fit (smoothed) is likely.",
        alike="shifted_columns and other_base, which are found first.",
        advice="Write the log-prob of each sampled token as the policy gave it.",
        source="djl-serving #1355 has running totals in the place of log-probs",
    ),
    _fault_of_a_file(
        name="probabilities",
        meaning="A column holds probabilities, not their logarithms.",
        looks="A column lies between 0 and 1, and most of it above 0.",
        certainty="Certain from 8 values above 0 on: no log-prob is.",
        alike="Nothing else: single log-probs just above 0 are rounding, and no anomaly.",
        advice="Take the natural logarithm before writing the dump.",
        source="log-probs are at most 0, probabilities at least 0",
    ),
    _fault_of_a_file(
        name="other_base",
        meaning="One column is in logarithms of base 10 or 2.",
        looks="One column is ln 10 or ln 2 times the other (or one over it), and both lie on that line.",
        certainty="64 tokens, and two slopes that agree within 2% of the factor. Both columns in one base cannot be "
        "seen.",
        alike="temperature bends the line of log-probs, and is straight in log-odds.",
        advice="Multiply it by the logarithm of its base: ln 10 = 2.302585, ln 2 = 0.693147.",
        source="log_b p = ln p / ln b; noise and updates leave the slope of one column on the other within 1% of 1",
    ),
    _fault_of_a_file(
        name="swapped_columns",
        meaning="The tokens look drawn from the training column: the two have each other's names, or the rollout "
        "column was not what was sampled from.",
        looks="The mean log-ratio is above 0, and the mean of p_rollout / p_train is 1, as if training had drawn the "
        "tokens.",
        certainty="Needs 10,000 tokens at int8 noise, 40,000 at bf16 noise; with fewer it says nothing. Swapped "
        "columns of which one is cut by top-p are not seen.",
        alike="temperature with raw rollout log-probs, where the engine sampled from what training's column holds.",
        advice="Check which column is whose (map rollout_log_probs=COLUMN, map old_log_probs=COLUMN), and that the "
        "engine returns log-probs after temperature and top-p (vLLM: logprobs_mode=processed_logprobs).",
        source="the mean of p_train / p_rollout over tokens drawn from the rollout policy is 1, and the mean log-ratio "
        "-KL",
    ),
    Cause(
        kind="file",
        name="steps_out_of_order",
        meaning="A file's steps lie before those of the file read before it.",
        looks="The steps of a file's first rows lie before those of the file read before it.",
        certainty="Certain where files have a step column in order; ranges that overlap (ranks of one step) are no "
        "evidence.",
        alike="Files of shuffled rows, which have no order and raise nothing.",
        advice="Name the files in training order (a shell puts step10 before step2: name the folder, or quote the "
        "glob), and leave out what a resumed run wrote again.",
        source="names sort as text; a resumed run repeats steps",
    ),
)
"""What a file as a whole looks like when it was written wrongly; the tests for these are in `anomalies`."""


SAME_PROMPT = "Compare the prompts of both sides token by token: template, system prompt, trailing newline."
WEIGHTS = (
    "Check what the rollout engine runs (8-bit weights, checkpoint, an adapter not merged, prompt, RoPE's settings), "
    "and that training scores without dropout and keeps packed sequences apart."
)
_OF_A_GAP = (
    Cause(
        name="grid",
        sits_on="all",
        effect="none",
        meaning="A column is on a coarse grid: stored or computed in bf16, in fp16, or in a few decimals.",
        looks="99% of its values other than 0 lie on the grid, which moves a value by step^2 / 12 in the mean square. "
        "Or its values next to 0 lie a step apart, and the columns differ there, as a log-softmax in bf16 leaves them.",
        certainty="That a column is on a grid is certain from 64 values on, and always reported as a fact; it is a "
        "cause where this rounding alone makes half of the gap.",
        alike="rounding noise comes from arithmetic in bf16, and leaves values off the grid.",
        advice="Write log-probs as float32, computed by a log-softmax in float32.",
    ),
    _fault(
        name="mispaired_rows",
        scope="rows",
        sits_on="odd",
        meaning="In some rows the two columns are of different responses: they were joined wrongly.",
        looks="In these rows both columns vary and hardly go together (correlation below 0.5 in each), nearly every "
        "token is far off, and neither policy can have drawn them: the mean ratio and the mean inverse ratio both lie "
        "above 1.",
        certainty="16 tokens or more judge a row, two standard errors all such rows. A single row is often missed.",
        alike="Rows of another model or checkpoint in the same dump, which some_rows or column name where they still "
        "go together.",
        advice="Join the two sides by id, not by the order of rows; `rlcorr inspect DUMP --row ID` shows one of these.",
    ),
    _fault(
        name="slipped_rows",
        scope="rows",
        sits_on="all",
        meaning="Inside some rows one column slips: from some token on, or from the start, its log-probs are of "
        "earlier or later tokens.",
        looks="These rows agree up to some token, if at all, and from there on 1 to 8 places earlier or later.",
        certainty="3 rows at least, in which the slip explains 70% or more of what differs after it.",
        alike="mispaired_rows, which agree at no shift; shifted_columns, where all rows are shifted from their start.",
        advice="Look at the token where it begins (`rlcorr inspect DUMP --row ID`): one side added or lost tokens "
        "there, often at a tool call or a stop string.",
        source="rLLM #816, TRL #5224",
    ),
    _fault(
        name="top1_recorded",
        sought="recording",
        moves_mean="below",
        proven="always",
        meaning="The rollout column holds the log-prob of the likeliest token, not of the sampled one.",
        looks="Where the two columns differ by more than 1, the rollout's is always the higher one, and the two "
        "probabilities sum to 1 at most, as those of two different tokens do.",
        certainty="Both must hold for 99.5% of 30 tokens or more, and of tokens with a log-prob of log p no more than "
        "1 - p may be far off, because so often another one than the likeliest is sampled.",
        alike="wrong_labels, where sure tokens are as often far off as others.",
        advice="Read the log-prob of the sampled token, not the first candidate of the engine's top_logprobs.",
        source="NeMo-RL #3297",
    ),
    _fault(
        name="wrong_labels",
        sought="recording",
        moves_mean="either",
        meaning="One column holds log-probs of other tokens than the sampled ones.",
        looks="Where the two columns differ by more than 1, they have nothing to do with each other (a correlation "
        "below 0.2), one is the lower one on 90% or more, and the two probabilities sum to 1 at most, as those of two "
        "different tokens do.",
        certainty="Needs 30 such tokens. Which tokens were scored is not in the dump.",
        alike="top1_recorded, whose sure tokens are hardly ever far off; mispaired_rows and slipped_rows, whose "
        "columns are of other places, so that neither is the lower one.",
        advice="Compare the labels that this side scores with the sampled token ids, from the first far token of a row "
        "on (`rlcorr inspect DUMP --row ID`).",
    ),
    _fault(
        name="first_token",
        scope="tokens",
        sits_on="first",
        meaning="The first token of a response is off, and the others are not.",
        looks="First tokens are off by more than a factor of 2 at five times the rate of the others, beyond chance.",
        certainty="Two such tokens at least, and a rate that chance gives fewer than 3 in 10,000 dumps.",
        alike="position_decays, where tokens after the first are off, too, and less and less.",
        advice=SAME_PROMPT,
    ),
    _fault(
        name="last_token",
        scope="tokens",
        sits_on="last",
        moves_mean="either",
        meaning="The last token of a response is off, and the others are not.",
        looks="Last tokens are off by more than a factor of 2 at five times the rate of the others, beyond chance; a "
        "rollout log-prob of exactly 0 there means that nobody sampled it.",
        certainty="Two such tokens at least, and a rate that chance gives fewer than 3 in 10,000 dumps.",
        alike="A truncated response has no end token: a dump of such rows alone cannot show it.",
        advice="Check which end token each side scores. One that the framework appended has no log-prob: mask it.",
        source="SkyRL #2148",
    ),
    _fault(
        name="mask_boundary",
        scope="tokens",
        sits_on="seams",
        meaning="Tokens after a masked stretch inside a response (a tool's output) are off, and the others are not.",
        looks="The first four tokens after such a stretch are off by more than a factor of 2 at five times the rate of "
        "the others, beyond chance.",
        certainty="Two such tokens at least, and a rate that chance gives fewer than 3 in 10,000 dumps.",
        alike="position_grows, where what follows a tool's output stays off.",
        advice="Hand tokens, not text, from turn to turn: text that is tokenized again gives other tokens at the seam.",
        source="TRL #5224",
    ),
    Cause(
        name="position_onset",
        sought="along",
        not_beside=("slipped_rows", "repetition_penalty"),  # tokens that repeat stand late
        sits_on="inner",
        meaning="From some place of a response on, every token is farther off.",
        looks="The typical distance jumps at one index by a factor of 3 or more, and is level before it.",
        certainty="Six standard errors, and 5% of the tokens on either side.",
        alike="Long responses of another kind (worker, source) that start to stand alone from some index on.",
        advice="Compare the attention windows and the KV caches of both sides: something is cut off from there on.",
    ),
    Cause(
        name="position_grows",
        sought="along",
        not_beside=("slipped_rows", "repetition_penalty"),  # tokens that repeat stand late
        scope="trend",
        sits_on="inner",
        rank=2,
        meaning="The gap grows along the response.",
        looks="The typical distance grows along the logarithm of the index, by a factor of 1.5 or more over a "
        "response.",
        certainty="Four standard errors.",
        alike="repetition_penalty in a dump without token ids: tokens that repeat stand late.",
        advice="Compare RoPE's settings, the precision of the KV cache, and what the cache keeps.",
    ),
    _fault(
        name="position_decays",
        sought="along",
        not_beside=("slipped_rows", "repetition_penalty"),  # tokens that repeat stand late
        scope="trend",
        sits_on="inner",
        rank=2,
        meaning="The first tokens of a response are the farthest off, and later ones less and less.",
        looks="The typical distance falls along the logarithm of the index, nearly by half or more over a response.",
        certainty="Five standard errors. That the prompts differ is a conclusion: the dump holds responses alone.",
        alike="first_token, where the first is off alone.",
        advice=SAME_PROMPT,
    ),
    _fault(
        name="repetition_penalty",
        sought="curve",
        at_equal_surprise=True,
        needs="token ids",
        scope="setting",
        least_share=0.1,
        meaning="One side's log-probs are after a repetition (or frequency, or presence) penalty, the other's are not.",
        looks="At the same surprise, tokens that stood in the response before are moved, and new ones are not.",
        certainty="Needs token_ids: a tenth of the variation at equal surprise depends on the repetition. Tokens of "
        "the prompt, which are penalized too, are not in the dump.",
        alike="Without token_ids it looks like other_weights, drift or position_grows.",
        advice="Sample without a penalty, or return log-probs from before it.",
    ),
    _fault(
        name="temperature_and_truncation",
        sought="curve",
        scope="setting",
        moves_mean="either",
        reading="a temperature and a cut",
        proven="unless_stale",
        meaning="One side's log-probs are after another temperature and after a cut (top-p, top-k, min-p).",
        looks="As of top_p, and among unlikely tokens the log-odds lie on a line that is not level.",
        certainty="Two independent signs show that both are there; the parameters of neither are known.",
        alike="A cut under softcapped logits.",
        advice="Return log-probs from before the sampler, or apply the same temperature and cut in training.",
    ),
    _fault(
        name="top_p",
        sought="curve",
        scope="setting",
        moves_mean="either",
        least_share=0.05,
        reading="top-p",
        proven="unless_stale",
        meaning="One side's log-probs are after top-p (nucleus) sampling, the other's are not.",
        looks="Where the other policy gives a token more than p, it is alone in the nucleus, and its log-prob is "
        "exactly 0; nowhere else. The other policy gives mass to tokens that are never sampled: the mean "
        "ratio is below 1.",
        certainty="10 tokens at 0 at least, or 3 where the bound is sharp. p is the bound that most tokens keep. "
        "Proven if, of the tokens near it, 1% at most are off by a fifth of -log p; a cut of some rows has no number. "
        "A policy that gives no token more than p leaves none at 0: there all tokens gain alike.",
        alike="min_p, whose bound is not sharp; top_k, which sets hardly any token to 0.",
        advice="Return log-probs from before truncation, or apply the same top-p in training.",
        source="TRL #6789",
    ),
    _fault(
        name="min_p",
        sought="curve",
        scope="setting",
        moves_mean="either",
        least_share=0.05,
        reading="min-p",
        proven="unless_stale",
        meaning="One side's log-probs are after min-p sampling, the other's are not.",
        looks="Log-probs of exactly 0 and a mean ratio below 1, as with top_p, but without a limit at one "
        "probability. No other token comes closer to 0 than m allows.",
        certainty="m is estimated from the largest log-prob below 0, up to a tenth too large. Proven where tokens "
        "break top_p's bound by more than noise and staleness make them.",
        alike="top_p near 1, where hardly any token lies near the bound, or under noise of 0.25 in log-odds or more.",
        advice="Return log-probs from before truncation, or apply the same min-p in training.",
    ),
    _fault(
        name="temperature",
        sought="curve",
        not_beside=("column",),
        scope="setting",
        moves_mean="above",
        reading="a temperature",
        meaning="The two sides' log-probs are of different temperatures.",
        looks="The log-odds of one policy over those of the other are a straight line, whose slope is the ratio of the "
        "temperatures.",
        certainty="The ratio is reported with its interval, which tokens that share their prefix (samples of one "
        "prompt) make narrow; 0.8 against 1 and 1 against 1.25 are the same ratio. "
        "That tokens were drawn from training's policy (so that rollout's log-probs are raw) is seen from "
        "the means of the ratio and of its inverse.",
        alike="logit_softcap bends the line and fans out among likely tokens; changed weights scatter around it.",
        advice="Divide training's logits by the temperature that the rollout samples at, or set both to the same. The "
        "rollout's log-probs must be from after it (vLLM: logprobs_mode=processed_logprobs).",
    ),
    Cause(
        name="logit_softcap",
        sought="curve",
        not_beside=("column",),
        reading="a soft-cap",
        meaning="One side caps its logits (c tanh(z / c)), the other does not.",
        looks="A line as of temperature, which bends, or around which likely tokens scatter more than the others.",
        certainty="The sign of the slope shows which side caps; the cap itself is unknown.",
        alike="temperature, whose spread is level.",
        advice="Give both sides the same softcap of the final logits.",
    ),
    _fault(
        name="unnormalised",
        sought="curve",
        not_beside=("column",),
        moves_mean="either",
        proven="always",
        meaning="One side's numbers are not log-probs: they do not sum to 1 over the vocabulary.",
        looks="Nearly all log-ratios have one sign, and neither the mean ratio nor the mean inverse ratio is 1: no "
        "policy could have drawn these tokens. Log-probs, not logits, were divided by the temperature, or a "
        "mean over them was taken.",
        certainty="Both means must be four errors from 1, on the sides that no pair of distributions allows.",
        alike="A drawn-from-neither mixture, such as several cuts or temperatures at once.",
        advice="Divide logits by the temperature before the log-softmax, not log-probs after it.",
    ),
    _fault(
        name="top_k",
        sought="curve",
        not_beside=("column",),
        scope="setting",
        moves_mean="either",
        reading="top-k",
        meaning="One side's log-probs are after top-k sampling, the other's are not.",
        looks="The mean ratio is below 1, most log-ratios are negative, and no token is set to exactly 0.",
        certainty="The mass that is kept is estimated; k cannot be. Top-p and min-p set a token of probability 0.99 to "
        "exactly 0: where 10 such tokens stand, and are not, it was neither. Without them it may be any of the three.",
        alike="padded_vocabulary, where some tokens lose more than a cut can take; top_p and min_p of a policy that is "
        "sure of no token.",
        advice="Return log-probs from before truncation, or apply the same top-k in training.",
    ),
    Cause(
        name="column",
        scope="broad",
        sits_on="paired",
        meaning="Rows of some levels of a column (a worker, a source, a version) carry the gap.",
        looks=f"Their tokens are {MIN_SIZE:g} times as far off as the others' or more, beyond chance among all levels "
        "of all columns that were tried, and so within the levels of other columns.",
        certainty="Chance is counted over everything that was tried, so one more column accuses no level. Where the "
        "gap sits is reported, and within these rows a temperature, a cut and the like.",
        alike="Another column with the same rows in its levels: each stands out, and neither is more of a cause.",
        advice="Look at what these rows have of their own: worker, engine settings, version of the weights.",
    ),
    Cause(
        name="stale_cache",
        scope="broad",
        sits_on="paired",
        meaning="The engine's prefix cache holds what the weights of an earlier version made of a prompt.",
        looks=f"Rows with cached_tokens above 0 are {MIN_SIZE:g} times as far off as the others or more, at equal "
        "lengths of prompts and within the levels of the other columns, and the more so with each step, with each "
        "version, or with each step since the last update.",
        certainty=f"{MIN_Z:g} standard errors of the difference, and of its growth. A dump of one step has no growth: "
        "there the lengths of prompts (prompt_length, total_prompt_tokens) must be known. Hits that are equally old at "
        "every step do not grow, and are told as the column cached_tokens.",
        alike="column, where hits stand apart and do not grow: another kernel for cached prefixes, an 8-bit KV cache. "
        "stale_policy, whose rows are off with and without hits.",
        advice="Empty the prefix cache with every update of the weights: in vLLM by reset_prefix_cache, or "
        "pause_generation with clear_cache=True; in SGLang by flush_cache, which an update in place leaves out. Or "
        "keep the cache of each version apart: vLLM's cache_salt, SGLang's extra_key.",
        source="NVIDIA-NeMo/RL#4018, miles #2783, prime-rl #2266: a cached block is found by its tokens, whichever "
        "weights made it",
    ),
    Cause(
        name="some_rows",
        not_beside=("slipped_rows", "place"),
        scope="broad",
        sits_on="paired",
        rank=2,
        meaning="A minority of rows is farther off than the others, and no column says what they have in common.",
        looks="3 rows at least and 45% at most lie far above the median in the typical distance of their tokens.",
        certainty="It is certain that they differ, not why. Needs 16 rows.",
        alike="column, where the dump names what these rows share; mispaired_rows, where the columns do not go "
        "together at all.",
        advice="Look at some of them (`rlcorr inspect DUMP --row ID`), and compare rows by other columns, too "
        "(`rlcorr diagnose DUMP --by COLUMN`).",
    ),
    Cause(
        name="stale_policy",
        sought="spread",
        needs="advantages or rewards",
        claims_all=True,
        rank=1,
        meaning="The rollout's weights are some updates behind training's, which has learned from these very rows.",
        looks="Whole rows gain or lose probability, and the better ones (by advantage) gain.",
        certainty="Needs advantages or rewards. A few updates on other prompts stay below bf16's noise, and cannot "
        "be told from other_weights.",
        alike="drift, where the dump has no advantages; other_weights, where the updates were on other rows.",
        advice="Sync the weights to the rollout engine more often, or compute old_log_probs before an "
        "update that runs in between.",
    ),
    Cause(
        name="drift",
        sought="spread",
        follows_faults=True,
        scope="broad",
        claims_all=True,
        reading="another drift of the weights",
        rank=3,
        meaning="Whole rows gain or lose probability: the policies differ, not their arithmetic.",
        looks="Rows differ in their shares of tokens that went up by more than chance gives.",
        certainty="It is certain that the policies differ; whether by updates or otherwise needs advantages to tell.",
        alike="stale_policy, whose rows gain with the advantage; other_weights; repetition_penalty without token_ids.",
        advice="Check how old the rollout's weights are, and which checkpoint each side loaded.",
    ),
    _fault(
        name="padded_vocabulary",
        sought="spread",
        moves_mean="below",
        reading="a padded vocabulary",
        meaning="Training's softmax runs over rows of the vocabulary's padding, which rollout leaves out.",
        looks="The mean ratio is below 1, no token is set to 0, and some rare tokens lose more than V times their own "
        "probability, V being the size of the vocabulary: more than all tokens that a cut rules out can hold. Or some "
        "tokens are far below the others, and hardly any above.",
        certainty="10 tokens at least break that bound, and the lost mass is 12 errors from 0; or 20 tokens are far "
        "off. Padding rows that are zero leak little, and are harmless.",
        alike="top_k and other cuts, which keep the bound; other_weights, whose mean ratio is 1.",
        advice="Mask the padding rows of the vocabulary before the softmax.",
    ),
    Cause(
        name="heavy_tail",
        sought="spread",
        scope="broad",
        effect="none",
        reading="a few tokens far off",
        rank=2,
        meaning="A few tokens are far off, all over the rows, and the others are close.",
        looks="Single tokens far beyond the others carry the gap: with them log-odds differ 1.3 times as much as noise "
        "of the shape that the others have, or more.",
        certainty="Noise of bf16 is quiet and loud, by surprise and by kind of token; only what lies beyond its loud "
        "tokens counts. Router flips look so: the two engines send a token to different experts, and single tokens are "
        "far off, each by itself. In which layers they do is not in the dump, nor whether the model has experts at "
        "all, so any other fault that single tokens meet looks the same. Tokens that are far off one after the other "
        "are no flips.",
        alike="some_rows, where they stand in few rows; other_weights, where they go with the token; noise, where more "
        "than one token in 20 is far off, as in a deep mixture of experts.",
        advice="If the model is a mixture of experts, replay the rollout's routing in training (R3).",
    ),
    Cause(
        name="other_weights",
        sought="spread",
        needs="token ids",
        follows_faults=True,
        scope="broad",
        claims_all=True,
        reading="changed weights",
        rank=3,
        meaning="The two sides run different weights, or the same in a far coarser format.",
        looks="The difference in log-odds goes with the token's id across prompts, or is larger than number formats "
        "give.",
        certainty="One of: 8-bit weights, another checkpoint or a stale one, an adapter not merged, another prompt, "
        "RoPE. Which of these, a dump cannot tell; but dropout and packed rows that see one another give the same "
        "token other log-probs after the same prefix, which is told where samples of a prompt share one. With few "
        "tokens or prompts rounding and changed weights look alike; a clean dump of the same model (`rlcorr diagnose "
        "DUMP --clean-dump FILE`) tells them apart.",
        alike="stale_policy by updates on other rows; without token_ids noise of the same size.",
        advice=WEIGHTS,
    ),
    Cause(
        name="noise",
        sought="rest",
        scope="broad",
        effect="none",
        reading="rounding noise",
        rank=4,
        least_share=0.4,
        meaning="Rounding: both sides run the same weights by different kernels or precisions.",
        looks="The log-odds differ alike at all levels of surprise, on quiet tokens and on loud ones, no rows gain or "
        "lose as a whole, and the mean of e^l is 1.",
        certainty="How wide rounding spreads log-odds depends on the model: bf16 leaves 0.01 to 0.1. By a clean dump "
        "of the same model at the same temperature (`rlcorr diagnose DUMP --clean-dump FILE`) up to 1.5 times its "
        "spread is noise. Raw log-probs "
        "on both sides hide any temperature and cut that was sampled with.",
        alike="Weights that were changed a little, in a dump without token_ids or of few tokens.",
        advice="Nothing in the data is wrong. Token-level weights correct what noise leaves; a higher precision of the "
        "last layer shrinks it.",
    ),
)

CAUSES: Mapping[str, Cause] = {row.name: row for row in _OF_A_GAP}
"""Name -> cause, those of a gap between two policies alone."""


ALL_CAUSES: Mapping[str, Cause] = {**{row.name: row for row in ANOMALIES}, **CAUSES}
"""Name -> cause: those of files first, because one that holds may make all else meaningless, then CAUSES."""

NOISE = "noise"
"""The cause that `check --fail-on cause` leaves out, because nothing has to be done about it."""
ANY_CAUSE = "cause"
"""The value of --fail-on that stands for every cause but noise."""
